"""Process manager: several agents of one machine, one for each core, as processes with one configuration.

An agent has one event loop, which is one core. `streamhouse up --agents N` starts N agents, which are a cluster like
any other: they share PostgreSQL and an object store, and each has its own ports and, if it needs one, a data folder.

    plan         decides: how many agents, their ports and folders, whether the stores allow several (no I/O)
    restarts     decides: when an agent that ended is started again, and when no more (no I/O)
    health_page  the states of all agents as one page over HTTP
    manager      starts, watches and stops them
"""
