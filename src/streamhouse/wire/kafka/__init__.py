"""Kafka's protocol: frames become calls on the broker, and its answers become frames again."""
