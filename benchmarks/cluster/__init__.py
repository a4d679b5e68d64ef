"""Cluster: questions to agents that share PostgreSQL and an S3 server, with the servers of `streamhouse dev cluster`.

Owns        `team` (a cluster's life and what it can be asked), `routes` (who leads what), `probes` (steady producers
            whose every wait is kept), and one module for each question
Leaves      single brokers and the comparison with Kafka to the folder above, results and tables too
"""
