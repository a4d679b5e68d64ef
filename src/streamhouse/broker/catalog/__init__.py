"""Topics as this agent knows them, the agent's settings by Kafka's names, and dynamic settings."""
