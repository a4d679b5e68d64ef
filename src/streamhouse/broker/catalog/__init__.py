"""Settings: an agent's settings by Kafka's names, and those that change while it runs."""
