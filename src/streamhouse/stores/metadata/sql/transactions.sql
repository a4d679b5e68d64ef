-- name: find_transaction
-- A transactional id.
SELECT transactional_id, producer_id, producer_epoch, previous_id, previous_epoch, marked_id, marked_epoch, timeout_ms,
       state, number, started_at_ms, changed_at_ms, partitions
FROM transactions WHERE transactional_id = :transactional_id;

-- name: hold_transaction
-- A transactional id, locked for a change.
SELECT transactional_id, producer_id, producer_epoch, previous_id, previous_epoch, marked_id, marked_epoch, timeout_ms,
       state, number, started_at_ms, changed_at_ms, partitions
FROM transactions WHERE transactional_id = :transactional_id;

-- name: transaction_of_producer
-- The transactional id whose producer has this id now.
SELECT transactional_id, producer_id, producer_epoch, previous_id, previous_epoch, marked_id, marked_epoch, timeout_ms,
       state, number, started_at_ms, changed_at_ms, partitions
FROM transactions WHERE producer_id = :producer_id
ORDER BY transactional_id LIMIT 1;

-- name: insert_transaction
-- Insert a transactional id, unless it exists.
INSERT INTO transactions (
    transactional_id, producer_id, producer_epoch, previous_id, previous_epoch, marked_id, marked_epoch, timeout_ms,
    state, number, started_at_ms, changed_at_ms, due_at_ms, partitions
) VALUES (
    :transactional_id, :producer_id, :producer_epoch, :previous_id, :previous_epoch, :marked_id, :marked_epoch,
    :timeout_ms, :state, :number, :started_at_ms, :changed_at_ms, :due_at_ms, :partitions
)
ON CONFLICT (transactional_id) DO NOTHING;

-- name: update_transaction
-- Update a locked transactional id.
UPDATE transactions SET
    producer_id = :producer_id, producer_epoch = :producer_epoch, previous_id = :previous_id,
    previous_epoch = :previous_epoch, marked_id = :marked_id, marked_epoch = :marked_epoch, timeout_ms = :timeout_ms,
    state = :state, number = :number, started_at_ms = :started_at_ms, changed_at_ms = :changed_at_ms,
    due_at_ms = :due_at_ms, partitions = :partitions
WHERE transactional_id = :transactional_id;

-- name: due_transactions
-- Transactions that are open or prepared for too long; a page after the given one.
SELECT transactional_id, producer_id, producer_epoch, previous_id, previous_epoch, marked_id, marked_epoch, timeout_ms,
       state, number, started_at_ms, changed_at_ms, partitions
FROM transactions
WHERE due_at_ms IS NOT NULL AND due_at_ms <= :now_ms AND (state = 'Ongoing' OR due_at_ms <= :decided_ms)
  AND due_at_ms >= :after_ms AND (due_at_ms > :after_ms OR transactional_id > :after)
ORDER BY due_at_ms, transactional_id LIMIT :limit;

-- name: list_transactions
-- A page of all.
SELECT transactional_id, producer_id, producer_epoch, previous_id, previous_epoch, marked_id, marked_epoch, timeout_ms,
       state, number, started_at_ms, changed_at_ms, partitions
FROM transactions WHERE transactional_id > :after
ORDER BY transactional_id LIMIT :limit;

-- name: forget_transactions
-- Delete transactional ids without an open transaction for long, unless one begins right now.
DELETE FROM transactions
WHERE due_at_ms IS NULL AND changed_at_ms <= :before_ms
  AND transactional_id IN (
      SELECT old.transactional_id FROM transactions AS old
      WHERE old.due_at_ms IS NULL AND old.changed_at_ms <= :before_ms
      ORDER BY old.changed_at_ms, old.transactional_id LIMIT :limit
  );
