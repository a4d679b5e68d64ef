"""Placing: segments that others wrote become part of partitions, in one commit over many leaders."""
