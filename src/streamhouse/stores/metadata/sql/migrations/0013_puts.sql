-- Whether an agent's writes reach the object store, so that one that alone is cut off from it gives its leases up.

-- When a write of the session last reached the object store, by this database's clock; 0: none did.
ALTER TABLE sessions ADD COLUMN put_at_ms INTEGER NOT NULL DEFAULT 0;

-- Whether writes are tried and none reaches it.
ALTER TABLE sessions ADD COLUMN put_failing INTEGER NOT NULL DEFAULT 0 CHECK (put_failing IN (0, 1));
