"""Pipelines: a supervisor takes definitions through leases and keeps them running on Spark.

Data path   agents (definitions, leases) -> **supervisor** -> runner (a process with a Spark) -> streaming queries
Owns        who runs what, restarts, checkpoints, what is told about them
Leaves      the meaning of SQL to `sql`, places to `connectors`, exactly once to the sinks
"""
