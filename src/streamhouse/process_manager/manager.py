"""Process manager: starts the agents, starts those again that end, and stops all of them.

Data path   `streamhouse up --agents N` -> `plan` -> **manager** -> N processes of `streamhouse up`
Owns        the life of the processes, what the health page says
Leaves      ports and folders to `plan`, when to start again to `restarts`
Invariant   an agent that ends takes no other with it; when the process manager ends, every agent ends

Agents get the same flags, environment and file as the process manager; flags go through the environment, because a
command line is visible to every user of the machine, and URLs may hold a password. They write their logs to the
process manager's standard error.
"""

import http.client
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streamhouse.config import Address, Settings
from streamhouse.config.listener_spec import ListenerProtocol
from streamhouse.dev.processes import ChildProcess, Program, Reservation, StopSignals, clock, stopped_by_signals
from streamhouse.errors import Stopping
from streamhouse.process_manager.health_page import AgentHealth, State, health_page
from streamhouse.process_manager.plan import (
    AGENTS_FOLDER,
    AgentSlot,
    check_left_logs,
    check_stores,
    data_folder,
    plan_agents,
)
from streamhouse.process_manager.restarts import Restarts

WATCH_S: Final = 0.2
LOOK_S: Final = 1.0
"""Time between two readiness checks of an agent."""
ASK_S: Final = 1.0
START_AGAIN_S: Final = 5.0
"""Time between two attempts to start a process that the system refuses."""
STOP_MARGIN_S: Final = 10.0  # beyond the time that an agent gives itself
EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerPlan:
    """The options of the command. Without `health` the page has the port after those of HTTP."""

    settings: Settings
    agents: int
    flags: Mapping[str, str]
    config: Path | None
    environment: Mapping[str, str]
    health: Address | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsReady:
    agents: Sequence[AgentHealth]
    health: Address


def run_agents(plan: ManagerPlan, *, on_ready: Callable[[AgentsReady], None], on_event: Callable[[str], None]) -> None:
    """Run the agents until SIGTERM, SIGHUP or Ctrl-C; a second signal kills what is still stopping. Raises
    `ChildFailed` if an agent ends before all were ready once, or when none is left."""
    check_stores(plan.settings, plan.agents)
    check_left_logs(plan.settings, plan.agents, numbers_with_logs=numbers_with_logs(plan.settings))
    stop_signals = StopSignals()
    with stopped_by_signals(stop_signals), suppress(Stopping), ExitStack() as stack:
        with Reservation() as free:
            slots = plan_agents(plan.settings, plan.agents, free_port=free.take)
            page = plan.health or Address(slots[-1].http.host, max(slot.http.port for slot in slots) + 1)
        manager = ProcessManager(plan, slots, stop_signals=stop_signals, on_event=on_event)
        stack.callback(manager.stop)
        listening = stack.enter_context(health_page(page, manager.states))
        manager.start()
        on_ready(AgentsReady(agents=manager.states(), health=listening))
        manager.watch()


def numbers_with_logs(settings: Settings) -> list[int]:
    """The numbers of the agents whose data folders have a write-ahead log of an agent that didn't end gracefully."""
    folders = (Path(settings.agent.data).absolute() / AGENTS_FOLDER).glob("*")
    numbers = [int(folder.name) for folder in folders if folder.name.isdecimal()]
    return [number for number in numbers if any(data_folder(settings, number).glob("wal/*/*.wal"))]


class ManagedAgent:
    """One agent: its process, its state, and when it is started again."""

    def __init__(self, slot: AgentSlot, program: Program, stop_signals: StopSignals) -> None:
        self.slot = slot
        self.child = ChildProcess(program, stop_signals)
        self.restarts = Restarts()
        self.state: State = "starting"
        self.start_at: float | None = None

    def __repr__(self) -> str:
        return f"<ManagedAgent {self.slot.number} {self.slot.kafka} {self.state} {self.child!r}>"

    def health(self) -> AgentHealth:
        return AgentHealth(
            number=self.slot.number,
            kafka=str(self.slot.kafka),
            http=str(self.slot.http),
            state=self.state,
            restarts=self.restarts.count,
        )

    def look(self) -> None:
        """Ask a running agent whether it is ready."""
        if is_ready(self.slot):
            self.state = "ready"
        elif self.state == "ready":
            self.state = "not ready"


class ProcessManager:
    def __init__(
        self,
        plan: ManagerPlan,
        slots: Sequence[AgentSlot],
        *,
        stop_signals: StopSignals,
        on_event: Callable[[str], None],
    ) -> None:
        self._stop_signals = stop_signals
        self._on_event = on_event
        self._grace_s = plan.settings.agent.longest_stop_s + STOP_MARGIN_S
        self._agents = [ManagedAgent(slot, program_of(slot, plan), stop_signals) for slot in slots]
        self._look_at = 0.0

    def __repr__(self) -> str:
        return f"<ProcessManager {self._agents!r}>"

    def states(self) -> list[AgentHealth]:
        return [agent.health() for agent in self._agents]

    def start(self) -> None:
        """Start all agents and wait until each was ready; recovery of a log may take its time."""
        for agent in self._agents:
            agent.child.start()
        while not all(agent.state == "ready" for agent in self._agents):
            for agent in self._agents:
                if not agent.child.running:
                    raise agent.child.failed(f"agent {agent.slot.number} did not start; {agent.child.ending}")
                if agent.state != "ready":
                    agent.look()
            self._agents[0].child.pause()

    def watch(self) -> None:
        """Watch until a signal; raises `ChildFailed` when no agent is left."""
        while not self._stop_signals.stop.wait(WATCH_S):
            now = clock.monotonic()
            for agent in self._agents:
                self._care_for(agent, now)
            if all(agent.state == "given up" for agent in self._agents):
                raise self._agents[0].child.failed("every agent ended too often")
            if now >= self._look_at:
                self._look_at = now + LOOK_S
                for agent in self._agents:
                    if agent.child.running:
                        agent.look()

    def _care_for(self, agent: ManagedAgent, now: float) -> None:
        """Note that an agent has ended, or start it again when it is time."""
        if agent.child.running or agent.state == "given up":
            return
        name = f"agent {agent.slot.number} (Kafka {agent.slot.kafka})"
        if agent.start_at is None:
            wait_s = agent.restarts.wait_after_end(now)
            if wait_s is None:
                agent.state = "given up"
                self._on_event(f"{name} ended ({agent.child.ending}) too often; it stays away, the others go on")
                return
            agent.state, agent.start_at = "restarting", now + wait_s
            self._on_event(f"{name} ended ({agent.child.ending}); it is started again in {wait_s:g} s")
        elif now >= agent.start_at:
            try:
                agent.child.start()
            except (OSError, subprocess.SubprocessError) as error:  # no process, memory or descriptor is left for it
                agent.start_at = now + START_AGAIN_S
                self._on_event(f"{name} can't be started ({error}); it is tried again in {START_AGAIN_S:g} s")
                return
            agent.restarts.count += 1
            agent.state, agent.start_at = "starting", None

    def stop(self) -> None:
        """All at once: each flushes to the shared stores."""
        for agent in self._agents:
            agent.child.ask_to_stop()
        for agent in self._agents:
            agent.child.wait_to_stop(self._grace_s)


def program_of(slot: AgentSlot, plan: ManagerPlan) -> Program:
    """The command of one agent: the flags of all in the environment, its own as arguments."""
    given = {f"STREAMHOUSE_{name.replace('.', '_').upper()}": value for name, value in plan.flags.items()}
    command = [sys.executable, "-P", "-m", "streamhouse", "up"]  # -P: never a folder of that name in this one
    if plan.config is not None:
        command += ["--config", str(plan.config)]
    for name, value in slot.settings.items():
        command += ["--set", f"{name}={value}"]
    return Program(
        name=f"agent {slot.number}", command=command, log_path=None, environment={**plan.environment, **given}
    )


def is_ready(slot: AgentSlot) -> bool:
    """Whether the agent says so. Its certificate isn't checked: it is our child, and nothing secret is sent. An agent
    that wants a certificate of ours, or a login, is ready as far as can be seen."""
    has_tls = slot.http_protocol in (ListenerProtocol.SSL, ListenerProtocol.SASL_SSL)
    context = ssl._create_unverified_context() if has_tls else None
    host = EVERYWHERE.get(slot.http.host, slot.http.host)
    url = f"{'https' if has_tls else 'http'}://{Address(host, slot.http.port)}/health/ready"
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=ASK_S) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError as error:
        with error:
            return error.code in (401, 403)
    except urllib.error.URLError as error:
        return isinstance(error.reason, ssl.SSLError)
    except (OSError, http.client.HTTPException):  # no answer, or one that was cut off or isn't HTTP
        return False
