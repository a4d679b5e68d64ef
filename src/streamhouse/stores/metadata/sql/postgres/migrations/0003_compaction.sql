-- How far partitions were compacted, so that a restart doesn't begin at their first record.

ALTER TABLE partitions ADD COLUMN cleaned_to BIGINT NOT NULL DEFAULT 0 CHECK (cleaned_to >= 0);
