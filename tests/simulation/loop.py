"""SimLoop: an event loop with virtual time, in which a seeded generator decides what runs next.

Owns        time, the order of everything that is ready, worker threads that aren't there, processes and their death
Leaves      what goes wrong and when to `faults`, what is promised to `history`

Every handle and timer belongs to the process whose context made it, or to the world outside all processes. A killed
process never runs again: nothing of it is cleaned up, as with SIGKILL. A paused one runs later. Functions for worker
threads run inline, some time after they were handed over, and their results arrive some time after that, so a
process can die between an effect and its knowledge of it.

Nothing depends on hashes or addresses: tasks and futures hash by the order of their birth, because asyncio keeps them
in sets.
"""

import asyncio
import heapq
import random
import sys
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from typing import Any, ClassVar, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STEP_S = 2e-5
"""Virtual time that one step takes, so that a busy loop meets its deadlines."""


STARVED_S = 0.3
"""Longest time that a handle is kept waiting."""


class Violation(AssertionError):
    """Something that must hold does not; the seed has failed."""


class Process:
    """What dies together: an agent and everything that runs for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.held: list[asyncio.Handle] = []
        self.steps = 0
        self.fuse: tuple[int, Callable[[], None]] | None = None
        """After so many more steps of this process, call this: a kill at any await."""
        self.tasks: list[SimTask] = []
        self.jobs: list[Job] = []
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        state = "dead" if self.is_dead else "paused" if self.is_paused else "alive"
        return f"<Process {self.name} {state} steps={self.steps}>"

    def burn(self) -> bool:
        """Count a step; False when it was the last one."""
        self.steps += 1
        if self.fuse is not None:
            left, act = self.fuse
            self.fuse = (left - 1, act)
            if left <= 0:
                self.fuse = None
                act()
        return not self.is_dead

    def living_tasks(self) -> "list[SimTask]":
        self.tasks = [task for task in self.tasks if not task.done()]
        return self.tasks


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class SimFuture(asyncio.Future[Any]):
    serial = 0
    process: Process | None = None
    """Who made it: what a dead process never looked at is nobody's fault, whenever it is thrown away."""

    def __hash__(self) -> int:
        return self.serial


class SimTask(asyncio.Task[Any]):
    coming: ClassVar[int] = 0
    """The serial of the task about to be made: asyncio hashes it before its constructor returns."""
    serial: int
    process: Process | None = None
    is_closing = False
    """Whether it only closes an async generator that nobody iterates any more."""

    def __new__(cls, *_: object, **__: object) -> "SimTask":
        task = super().__new__(cls)
        task.serial = cls.coming
        return task

    def __hash__(self) -> int:
        return self.serial


class Job:
    """A function in a worker thread."""

    def __init__(self, pool: "Pool", work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.pool = pool
        self.work = work
        self.future = future
        self.is_done = False

    def perform(self) -> tuple[Any, BaseException | None]:
        self.is_done = True
        try:
            return self.work(), None
        except Exception as error:  # noqa: BLE001 - it travels to whoever asked, as from a thread
            return None, error


class Pool:
    """The threads of one executor in one process: jobs start in order, as many at a time as there are threads."""

    def __init__(self, workers: int) -> None:
        self.free = workers
        self.waiting: deque[Job] = deque()


class SimLoop(asyncio.BaseEventLoop):
    def __init__(
        self,
        chance: random.Random,
        *,
        fifo: float = 0.3,
        starve: float = 0.0,
        unlucky: Iterable[str] = (),
        latency_s: float = 0.0005,
    ) -> None:
        """`fifo` is the share of steps that take the oldest handle, as a real loop does; the others take any. `starve`
        is the share of kinds of handles (by task or function) that wait for a while though they are ready; the
        `unlucky` ones always do."""
        super().__init__()
        self._chance = chance
        self._random = chance.random
        self._fifo = fifo
        self.starve = starve
        self._unlucky = dict.fromkeys(unlucky, True)
        self.latency_s = latency_s
        self._now = 1000.0
        self._serial = 0
        self._runnable: list[tuple[Process | None, asyncio.Handle]] = []
        self._timers: list[tuple[float, float, int, Process | None, asyncio.Handle]] = []
        self._pools: dict[tuple[Process | None, Executor | None], Pool] = {}
        self._processes: list[Process] = []
        self._tasks: list[SimTask] = []
        self._failure: BaseException | None = None
        self._is_over = False
        self.steps = 0
        self.digest = 0
        self.trace: Callable[[str], None] | None = None
        self.problems: list[str] = []
        self.make_server: Callable[..., Any] = _no_servers
        self.listening: dict[int, Any] = {}
        """By port, the newest server of `sockets`."""

    # --- what asyncio asks of a loop

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if context is None:
            context = copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        if self._is_over:
            return handle
        process = context.get(PROCESS)
        if self.starve and process is not None and self._is_starved(callback):
            self._serial += 1
            when = self._now + self._random() ** 2 * STARVED_S
            heapq.heappush(self._timers, (when, self._random(), self._serial, process, handle))
        else:
            self._runnable.append((process, handle))
        return handle

    def _is_starved(self, callback: Callable[..., object]) -> bool:
        """Whoever is unlucky is so all the time: the others get ahead of it as far as they can."""
        owner = getattr(callback, "__self__", None)
        kind = owner.get_name() if isinstance(owner, SimTask) else getattr(callback, "__qualname__", "")
        if kind not in self._unlucky:
            self._unlucky[kind] = self._random() < self.starve
        return self._unlucky[kind]

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + max(delay, 0), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if context is None:
            context = copy_context()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self._is_over:
            self._serial += 1
            entry = (when, self._random(), self._serial, context.get(PROCESS), handle)
            heapq.heappush(self._timers, entry)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are passed over when their time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        future = SimFuture(loop=self)
        self._serial += 1
        future.serial = self._serial
        future.process = PROCESS.get()
        return future

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> asyncio.Task[Any]:
        self._serial += 1
        SimTask.coming = self._serial
        task = SimTask(coro, loop=self, name=str(name) if name else coro.__qualname__, context=context)
        task.process = (copy_context() if context is None else context).get(PROCESS)  # an empty context is falsy
        home = self._tasks if task.process is None else task.process.tasks
        home.append(task)
        if len(home) % 256 == 0:
            home[:] = [one for one in home if not one.done()]
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        owner = context.get("task") or context.get("future")
        process = getattr(owner, "process", None) or PROCESS.get()
        if self._is_over or (process is not None and process.is_dead):
            return
        self.problems.append(f"{context.get('message')}: {context.get('exception')!r} {owner or ''}")

    def get_debug(self) -> bool:
        return False

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Any, *_: object, sock: Any, **__: object
    ) -> Any:
        """Clients that connect to the socket's port get a protocol each; until the process is dead."""
        server = self.make_server(self, protocol_factory, sock.getsockname()[1])
        self.listening[server.port] = server
        return server

    # --- threads that aren't there

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        context = copy_context()
        process = context.get(PROCESS)
        pool = self._pools.get((process, executor))
        if pool is None:
            pool = self._pools[process, executor] = Pool(getattr(executor, "_max_workers", 8))
        job = Job(pool, lambda: context.run(func, *args), self.create_future())
        pool.waiting.append(job)
        self._start_jobs(pool)
        return job.future

    def _start_jobs(self, pool: Pool) -> None:
        while pool.free and pool.waiting:
            job = pool.waiting.popleft()
            if job.future.cancelled():
                continue
            pool.free -= 1
            if (process := PROCESS.get()) is not None:
                process.jobs.append(job)
            self.call_later(self._delay(), self._perform, job)

    def _delay(self) -> float:
        slow = 50.0 if self._random() < 0.01 else 1.0
        return self._random() * 2 * self.latency_s * slow

    def _perform(self, job: Job) -> None:
        value, error = job.perform()
        if isinstance(error, AssertionError):
            self.fail(error)
        self.call_later(self._delay(), self._deliver, job, value, error)

    def _deliver(self, job: Job, value: Any, error: BaseException | None) -> None:
        if (process := PROCESS.get()) is not None:
            process.jobs.remove(job)
        job.pool.free += 1
        self._start_jobs(job.pool)
        if job.future.done():
            return
        if error is not None:
            job.future.set_exception(error)
        else:
            job.future.set_result(value)

    # --- processes

    def new_process(self, name: str) -> Process:
        process = Process(name)
        self._processes.append(process)
        return process

    def spawn(self, process: Process, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        return self.create_task(coro, name=name, context=process.context.copy())

    def kill(self, process: Process) -> list[Job]:
        """The process is gone; returns the jobs whose effect had not happened yet."""
        process.is_dead = True
        process.fuse = None
        process.held.clear()
        self._pools = {key: pool for key, pool in self._pools.items() if key[0] is not process}
        return [job for job in process.jobs if not job.is_done]

    def pause(self, process: Process, seconds: float) -> None:
        process.is_paused = True
        outside = Context()
        self.call_later(seconds, self._resume, process, context=outside)

    def _resume(self, process: Process) -> None:
        process.is_paused = False
        self._runnable.extend((process, handle) for handle in process.held)
        process.held.clear()

    # --- running

    def fail(self, error: BaseException) -> None:
        """The seed has failed; `run` raises this after the step under way."""
        if self._failure is None:
            self._failure = error

    def note(self, text: str) -> None:
        """What happened, as part of the trace."""
        self.digest = zlib.crc32(text.encode(), self.digest)
        if self.trace is not None:
            process = PROCESS.get()
            self.trace(f"{self._now - 1000:12.6f} {self.steps:7d} {process.name if process else '-':<10} {text}")

    def run(self, main: Coroutine[Any, Any, T], *, max_steps: int) -> T:
        asyncio._set_running_loop(self)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._finalise)
        try:
            task = self.create_task(main, name="main")
            while not task.done():
                if self.steps >= max_steps:
                    raise Violation(f"no end after so many steps; {max_steps}\n{self.dump()}")
                self._step()
                if self._failure is not None:
                    raise self._failure
            result: T = task.result()
            return result
        finally:
            self._bury()
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(None)

    def _finalise(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._is_over:
            self.call_soon(self._close_generator, generator)

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        task = self.create_task(generator.aclose(), name="aclose")
        assert isinstance(task, SimTask)
        task.is_closing = True

    def _step(self) -> None:
        self._ripen()
        runnable = self._runnable
        if not runnable:
            self._advance()
            return
        count = len(runnable)
        chosen = 0 if count == 1 or self._random() < self._fifo else int(self._random() * count)
        process, handle = runnable.pop(chosen)
        if handle.cancelled():
            return
        if process is not None:
            if process.is_dead:
                return
            if process.is_paused:
                process.held.append(handle)
                return
            if not process.burn():
                return
        self.steps += 1
        self._now += STEP_S
        self.digest = zlib.crc32(b"%d %d" % (chosen, count), self.digest)
        handle._run()

    def _ripen(self) -> None:
        """Timers whose time has come join what is ready."""
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            _, _, _, process, handle = heapq.heappop(timers)
            if not handle.cancelled():
                self._runnable.append((process, handle))

    def _advance(self) -> None:
        timers = self._timers
        while timers and (timers[0][4].cancelled() or ((owner := timers[0][3]) is not None and owner.is_dead)):
            heapq.heappop(timers)
        if not timers:
            raise Violation(f"deadlock; nothing is ready and nothing will be\n{self.dump()}")
        self._now = max(self._now, timers[0][0])

    def dump(self) -> str:
        """What everybody waits for."""
        waiting = [task for task in self._tasks if not task.done()]
        for process in self._processes:
            if not process.is_dead:
                waiting += process.living_tasks()
        return "\n".join(f"{task.process or '-'} {task!r}" for task in waiting)

    def _bury(self) -> None:
        """Let go of everything that will never run again, quietly: nothing that it still does counts."""
        self._is_over = True
        for task in (*self._tasks, *(task for process in self._processes for task in process.tasks)):
            if not task.done():
                _close(task)
        self._runnable.clear()
        self._timers.clear()
        self._pools.clear()
        self.close()


def _no_servers(*_: object) -> Any:
    raise NotImplementedError("nobody listens here")


def _close(task: SimTask) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coro = task.get_coro()
    try:
        coro.close()
    except BaseException as error:  # noqa: BLE001 - the dead may protest, nobody listens
        del error
