-- How often this database and its object store were seen together, so that one that is older than the other is noticed.

-- The last generation that was begun here, and the last one that the object store is known to have.
INSERT INTO counters (name, value) VALUES ('generation', 0), ('generation_stored', 0);
