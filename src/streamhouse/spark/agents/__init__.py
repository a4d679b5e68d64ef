"""The client of agents: read plans, commits, maintenance and definitions over HTTP."""
