-- The agents that a partition was assigned to, in the order in which Kafka's tools are shown them.

ALTER TABLE partitions ADD COLUMN replicas TEXT;
