"""What one agent session owns: leases, open partitions, heartbeat, flush; and the recovery of dead sessions."""
