-- Below which number all objects of a session's WAL were durable at its last heartbeat, so that lost ones are noticed.

ALTER TABLE sessions ADD COLUMN wal_durable BIGINT NOT NULL DEFAULT 0 CHECK (wal_durable >= 0);
