"""A TCP tunnel that can stop passing anything on, for tests of what a client does when a network swallows packets.

It can also refuse: connections end at once, and so do new ones.
"""

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Self


class Tunnel:
    """Loopback to loopback. While it swallows, connections stay open, new ones are taken, and nothing comes back."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._refuses = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.cut = 0
        """Connections that were reset or refused, and times that one had to wait with what it was sent."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        await asyncio.sleep(0)  # sockets that were given up are closed in the loop's next round

    def swallow(self) -> None:
        self._is_open.clear()

    def refuse(self) -> None:
        """Reset all connections, and each new one."""
        self._refuses = True
        self.cut += len(self._tasks)
        for task in self._tasks:
            task.cancel()

    def heal(self) -> None:
        self._refuses = False
        self._is_open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with suppress(asyncio.CancelledError):  # by ourselves; the server would tell of it as of a mistake
            await self._pass_on(reader, writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._refuses:
                self.cut += 1
                return
            await self._pass()
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pump(reader, back))
                    both.create_task(self._pump(there, writer))
            finally:
                back.transport.abort()
        except* OSError:
            pass
        finally:
            if self._refuses:  # a lingering time of zero: the other side sees a reset, not an end
                _socket_of(writer).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            await self._pass()
            sink.write(data)
            await sink.drain()
        raise ConnectionResetError("one side has closed")

    async def _pass(self) -> None:
        """At once, or when the tunnel is whole again."""
        if not self._is_open.is_set():
            self.cut += 1
            await self._is_open.wait()


def _socket_of(writer: asyncio.StreamWriter) -> socket.socket:
    result: socket.socket = writer.get_extra_info("socket")
    return result
