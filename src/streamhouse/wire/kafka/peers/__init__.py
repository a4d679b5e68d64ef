"""Peers: this agent as a Kafka client of the others."""

from .peers import KafkaPeers

__all__ = ["KafkaPeers"]
