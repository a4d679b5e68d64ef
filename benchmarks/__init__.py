"""Benchmarks: one module per question, each asked of StreamHouse and of Apache Kafka in the same run.

Owns        the brokers it starts on loopback, their temporary folders, and the numbers in `benchmarks/results/`
Leaves      what is promised to `streamhouse.broker`; correctness to `tests/`
"""
