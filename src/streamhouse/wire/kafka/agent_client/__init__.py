"""Peers: this agent as a Kafka client of the others."""

from streamhouse.wire.kafka.agent_client.client import KafkaAgentClient

__all__ = ["KafkaAgentClient"]
