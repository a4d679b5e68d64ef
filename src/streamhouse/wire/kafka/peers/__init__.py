"""Peers: this agent as a Kafka client of the others."""

from streamhouse.wire.kafka.peers.peers import KafkaPeers

__all__ = ["KafkaPeers"]
