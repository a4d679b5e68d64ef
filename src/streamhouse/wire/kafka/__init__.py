"""Kafka's protocol: request frames become calls on the broker, and results become response frames."""
