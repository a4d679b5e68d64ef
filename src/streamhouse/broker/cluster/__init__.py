"""Cluster: agents beside each other: who is there, who leads, what moves, and what the living do for the dead."""
