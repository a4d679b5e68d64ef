-- What a commit covers, and what the last batch of a view does: the source offsets behind it, as text or a digest. By
-- it a batch that comes again is known for the same one, or for another one of the same number.

ALTER TABLE commits ADD COLUMN covers TEXT;

ALTER TABLE views ADD COLUMN covers TEXT;
