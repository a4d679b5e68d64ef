-- name: list_pipelines
-- Every pipeline and its owner's host.
SELECT p.name, p.definition, p.revision, p.generation, p.query_id, p.starting, p.wish, p.created_at_ms, p.changed_at_ms,
       p.owner, p.epoch, p.expires_at_ms, p.status, s.host
FROM pipelines AS p LEFT JOIN supervisors AS s ON s.supervisor = p.owner
ORDER BY p.name;

-- name: find_pipeline
-- One pipeline and its owner's host.
SELECT p.name, p.definition, p.revision, p.generation, p.query_id, p.starting, p.wish, p.created_at_ms, p.changed_at_ms,
       p.owner, p.epoch, p.expires_at_ms, p.status, s.host
FROM pipelines AS p LEFT JOIN supervisors AS s ON s.supervisor = p.owner
WHERE p.name = :name;

-- name: fence_pipeline
-- The owner of a pipeline; locked until the end of the transaction.
SELECT owner, epoch, query_id FROM pipelines WHERE name = :name;

-- name: count_pipelines
-- How many there are.
SELECT COUNT(*) AS found FROM pipelines;

-- name: insert_pipeline
-- Insert a pipeline without an owner.
INSERT INTO pipelines (
    name, definition, revision, generation, query_id, starting, wish, created_at_ms, changed_at_ms, epoch, status
) VALUES (
    :name, :definition, :revision, :generation, :query_id, :starting, :wish, :now_ms, :now_ms, :epoch, :status
);

-- name: change_pipeline
-- Change definition, desired state or start. The owner stays, possibly under a new epoch.
UPDATE pipelines SET definition = :definition, revision = :revision, generation = :generation, query_id = :query_id,
                     starting = :starting, wish = :wish, changed_at_ms = :now_ms, epoch = :epoch, status = :status
WHERE name = :name;

-- name: drop_pipeline
-- Delete a pipeline with its log, and with its rows if it is a view.
DELETE FROM pipelines WHERE name = :name;

-- name: tell_statuses
-- Store statuses reported by the owner, in a JSON array of [name, status].
UPDATE pipelines SET status = given.value ->> 1
FROM json_each(:statuses) AS given
WHERE pipelines.name = given.value ->> 0;

-- name: renew_pipelines
-- Renew the leases of the pipelines in a JSON array of [name].
UPDATE pipelines SET expires_at_ms = :expires_at_ms
WHERE name IN (SELECT requested.value ->> 0 FROM json_each(:names) AS requested);

-- name: release_pipelines
-- Release the pipelines in a JSON array of [name]; their epochs stay.
UPDATE pipelines SET owner = NULL, expires_at_ms = 0
WHERE name IN (SELECT requested.value ->> 0 FROM json_each(:names) AS requested);

-- name: release_pipelines_of
-- Release all pipelines of a supervisor.
UPDATE pipelines SET owner = NULL, expires_at_ms = 0 WHERE owner = :supervisor;

-- name: take_pipelines
-- Assign pipelines in a JSON array of [name, epoch] to a supervisor.
UPDATE pipelines SET owner = :supervisor, expires_at_ms = :expires_at_ms, epoch = CAST(given.value ->> 1 AS BIGINT)
FROM json_each(:taken) AS given
WHERE pipelines.name = given.value ->> 0;
