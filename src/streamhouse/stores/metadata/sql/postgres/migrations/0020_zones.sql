-- The availability zone, or rack, of an agent.

-- Empty: unknown, as for agents of earlier releases.
ALTER TABLE sessions ADD COLUMN zone TEXT NOT NULL DEFAULT '';
