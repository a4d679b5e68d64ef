"""Cluster: membership, leaders and preferred leaders, departed agents, and the identity of the stores."""
