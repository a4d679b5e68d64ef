"""This agent as a Kafka client of other agents."""

from streamhouse.wire.kafka.agent_client.client import KafkaAgentClient

__all__ = ["KafkaAgentClient"]
