-- Which of two rows of a key is the newer one, where a view's query groups by nothing.

-- By which record the row was made: time, partition and offset in hex digits; NULL: any later row is newer.
ALTER TABLE view_rows ADD COLUMN version TEXT;
