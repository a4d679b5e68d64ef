"""Lake: topics as tables of Iceberg, Delta or Parquet, which other engines read while nothing of ours runs.

Data path   a pipeline's micro-batch -> **lake** -> data files by tasks -> one commit of the table
Owns        data files, commits with the progress in them, changes by key, schemas that grow, what is cleared away
Leaves      SQL and supervision to `pipelines`, decoding and dead letters to `connectors.topic`
"""
