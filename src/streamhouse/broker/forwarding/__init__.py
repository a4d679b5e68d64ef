"""Records: publishing and reading for everybody who is no Kafka client, at any agent, whoever leads."""
