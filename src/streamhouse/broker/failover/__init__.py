"""Failover: leadership changes, recovery of dead agents, isolation from a store, logs that come back."""
