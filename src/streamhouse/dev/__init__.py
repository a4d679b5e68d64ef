"""A whole cluster on one machine, as child processes on loopback: `streamhouse dev cluster`.

Used by people, tests and benchmarks. Agents are started as commands and never imported.
"""
