"""A JVM, its Spark session, and the files and processes that belong to it."""

import os
from typing import Final

DEFAULT_AGENTS: Final = "localhost:8080"
AGENTS_VARIABLE: Final = "STREAMHOUSE_AGENTS"
"""Environment variable of the driver with the agents of reads and writes that do not name any."""


def default_agents() -> str:
    """The agents of the environment, else the default address."""
    return os.environ.get(AGENTS_VARIABLE) or DEFAULT_AGENTS
