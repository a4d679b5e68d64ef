-- name: insert_aborted
-- An aborted transaction, in the transaction that publishes the run with its marker.
INSERT INTO aborted_transactions (topic_id, partition, last_offset, first_offset, producer_id)
VALUES (:topic_id, :partition, :last_offset, :first_offset, :producer_id)
ON CONFLICT (topic_id, partition, last_offset) DO NOTHING;

-- name: aborted_of
-- Aborted transactions with markers at or above the offset, for a JSON array of [topic id, partition, offset].
SELECT a.topic_id, a.partition, a.last_offset, a.first_offset, a.producer_id
FROM json_each(:from_offsets) AS requested
JOIN aborted_transactions AS a
  ON a.topic_id = requested.value ->> 0 AND a.partition = CAST(requested.value ->> 1 AS INTEGER)
  AND a.last_offset IN (
      SELECT next_ones.last_offset FROM aborted_transactions AS next_ones
      WHERE next_ones.topic_id = requested.value ->> 0 AND next_ones.partition = CAST(requested.value ->> 1 AS INTEGER)
        AND next_ones.last_offset >= CAST(requested.value ->> 2 AS BIGINT)
      ORDER BY next_ones.last_offset LIMIT :limit
  )
ORDER BY a.topic_id, a.partition, a.last_offset;

-- name: drop_aborted_below
-- Delete aborted transactions with markers below the log start, oldest first, up to a limit.
DELETE FROM aborted_transactions
WHERE topic_id = :topic_id AND partition = :partition
  AND last_offset IN (
      SELECT old.last_offset FROM aborted_transactions AS old
      WHERE old.topic_id = :topic_id AND old.partition = :partition
        AND old.last_offset < (
            SELECT p.log_start FROM partitions AS p WHERE p.topic_id = :topic_id AND p.partition = :partition
        )
      ORDER BY old.last_offset LIMIT :limit
  )
RETURNING topic_id, partition;

-- name: forget_aborted
-- Delete the aborted transactions with markers in a JSON array of [offset].
DELETE FROM aborted_transactions
WHERE topic_id = :topic_id AND partition = :partition
  AND last_offset IN (SELECT CAST(gone.value ->> 0 AS BIGINT) FROM json_each(:last_offsets) AS gone);

-- name: drop_aborted_of_topic
-- Part of deleting a topic.
DELETE FROM aborted_transactions WHERE topic_id = :topic_id;
