"""Asking: questions to agents from a runner's threads, which have no event loop.

Data path   building, targets -> **asking** -> an agent's HTTP listener
Owns        one connection for all threads of a process; patience with agents that are away
Leaves      what is asked to whoever asks
"""

from functools import lru_cache
from typing import Any, Final

from streamhouse.client.http import Answer
from streamhouse.client.loop_thread import LoopThread
from streamhouse.spark.agents import Agents

MAX_CONNECTED: Final = 4


@lru_cache(maxsize=MAX_CONNECTED)
def _connected(address: str) -> tuple[LoopThread, Agents]:
    loop = LoopThread(name="streamhouse-asking")
    return loop, loop.run(_connect(address))


async def _connect(address: str) -> Agents:
    return Agents(address)


def ask(address: str, method: str, path: str, body: Any = None) -> Answer:
    """The answer, once agents are there; none of what is asked here does harm when it is asked twice."""
    loop, agents = _connected(address)
    return loop.run(agents.answer(method, path, body=body))
