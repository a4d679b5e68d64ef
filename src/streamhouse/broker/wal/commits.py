"""Group commits: the futures that appends share.

Data path   append -> **commit** of its group -> everybody who waits for it
Owns        what a shared future may not do: be taken from the others by one of them, complain when nobody listens
Leaves      when a group is durable to the log that carries it
"""

import asyncio


class GroupCommit(asyncio.Future[None]):
    """The future that all appends of a group share. One waiter who gives up must not take it from the others."""

    def cancel(self, msg: object = None) -> bool:
        return False


def fail_quietly(future: asyncio.Future[None], error: Exception) -> None:
    future.set_exception(error)
    future.exception()  # seen: a producer that has gone leaves nobody to wait for it, which is no news
