-- The addresses of an agent's named Kafka listeners.

-- JSON: name, host and port of each; agents of earlier releases have none.
ALTER TABLE sessions ADD COLUMN listeners TEXT NOT NULL DEFAULT '[]';
