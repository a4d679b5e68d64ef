"""Maintenance: jobs that rewrite the runs of topics on Spark, in the place of those that stand there."""
