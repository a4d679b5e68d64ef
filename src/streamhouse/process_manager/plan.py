"""Plan: how many agents, on which ports, with which folders. Decides; touches nothing.

Owns        consecutive ports, a data folder and a cache folder per agent, what several agents need of their stores
Leaves      free ports (for port 0) to the caller
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streamhouse.config import Address, Settings, is_postgres
from streamhouse.config.exposure import grpc_listeners, http_listeners, kafka_listeners
from streamhouse.config.listener_spec import DEFAULT_NAME, ListenerProtocol, ListenerSpec
from streamhouse.errors import Misconfigured

AUTO: Final = "auto"
MAX_AGENTS: Final = 128
MAX_PORT: Final = 65_535
AGENTS_FOLDER: Final = "agents"
"""Below the data folder: the folders of all agents but the first, which has the data folder itself."""

FreePort = Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSlot:
    """One agent: its number from 1 on, the settings that it has for itself, and the addresses of its listeners."""

    number: int
    settings: Mapping[str, str]
    kafka: Address
    http: Address
    http_protocol: ListenerProtocol


def agent_count(text: str) -> int:
    """A number, or `auto`: one agent for each core that this process may use."""
    if text == AUTO:
        return usable_cores()
    if not text.isdecimal() or not 1 <= int(text) <= MAX_AGENTS:
        raise Misconfigured(f"--agents is a number from 1 to {MAX_AGENTS}, or auto; value={text!r}")
    return int(text)


def usable_cores() -> int:
    """The cores that this process may use; all of the machine where the system doesn't say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_stores(settings: Settings, agents: int) -> None:
    """Raise `Misconfigured` if the stores are for one agent only."""
    lacking = []
    if not is_postgres(settings.metadata.url):
        lacking.append("a PostgreSQL database (--metadata postgresql://…), as SQLite is for one agent")
    if not settings.store.url:
        lacking.append("an object store of their own (--store s3://BUCKET/PREFIX, or file:///FOLDER on one machine)")
    if lacking:
        raise Misconfigured(
            f"{agents} agents need {' and '.join(lacking)}; without them use --agents 1, or have a whole cluster "
            f"started: streamhouse dev cluster --agents {agents}"
        )
    if settings.security.authorization == "acls" and not settings.security.cluster_secret:
        raise Misconfigured("several agents with access rules need security.cluster_secret, as file:PATH or env:NAME")


def plan_agents(settings: Settings, agents: int, *, free_port: FreePort) -> list[AgentSlot]:
    """The first agent has the configured ports and data folder; of each other one every listener has the next port that
    no listener has. Advertised ports move along."""
    specs = {"kafka": kafka_listeners(settings), "http": http_listeners(settings), "grpc": grpc_listeners(settings)}
    taken = {spec.bind.port for each in specs.values() for spec in each}
    shifted = {
        section: [_shifted(spec, agents, taken, free_port=free_port) for spec in each]
        for section, each in specs.items()
    }
    return [
        _slot(index + 1, settings, {section: [one[index] for one in each] for section, each in shifted.items()})
        for index in range(agents)
    ]


def _shifted(spec: ListenerSpec, agents: int, taken: set[int], *, free_port: FreePort) -> list[ListenerSpec]:
    """One listener of all agents, each on its port."""
    if spec.bind.port == 0:
        return [_on_port(spec, free_port()) for _ in range(agents)]
    ports = [spec.bind.port]
    while len(ports) < agents:
        ports.append(next(port for port in range(ports[-1] + 1, 2**17) if port not in taken))
    if ports[-1] > MAX_PORT:
        raise Misconfigured(f"no port is left for another agent; listener={spec.bind} agents={agents}")
    taken.update(ports)
    return [_on_port(spec, port) for port in ports]


def _on_port(spec: ListenerSpec, port: int) -> ListenerSpec:
    public = spec.advertised
    if public is not None and spec.bind.port:
        public = Address(public.host, public.port + port - spec.bind.port)
    return ListenerSpec(name=spec.name, bind=Address(spec.bind.host, port), advertised=public, protocol=spec.protocol)


def _slot(number: int, settings: Settings, shifted: Mapping[str, Sequence[ListenerSpec]]) -> AgentSlot:
    own = {"agent.data": str(data_folder(settings, number))}
    for section, specs in shifted.items():
        own[f"{section}.listen"] = ",".join(_text(spec.name, spec.bind) for spec in specs)
    for section in ("kafka", "http"):
        public = [_text(spec.name, spec.advertised) for spec in shifted[section] if spec.advertised is not None]
        own[f"{section}.advertise"] = ",".join(public)
    if settings.fetch.disk_cache_path:
        own["fetch.disk_cache_path"] = str(Path(settings.fetch.disk_cache_path) / f"agent-{number}")
    kafka, http = shifted["kafka"][0], shifted["http"][0]
    return AgentSlot(number=number, settings=own, kafka=kafka.bind, http=http.bind, http_protocol=http.protocol)


def _text(name: str, address: Address) -> str:
    return str(address) if name == DEFAULT_NAME else f"{name}://{address}"


def data_folder(settings: Settings, number: int) -> Path:
    """The data folder of an agent: the first has the configured one, so that it finds what a single agent left."""
    folder = Path(settings.agent.data).absolute()
    return folder if number == 1 else folder / AGENTS_FOLDER / str(number)


def check_left_logs(settings: Settings, agents: int, *, numbers_with_logs: Sequence[int]) -> None:
    """Raise `Misconfigured` if an earlier start with more agents left a write-ahead log that none of these would read.

    Only its own agent recovers a log on disk: acknowledged records would be out of sight until it is back.
    """
    if beyond := [number for number in numbers_with_logs if number > agents]:
        folders = ", ".join(str(data_folder(settings, number)) for number in beyond)
        raise Misconfigured(
            f"write-ahead logs of agents that are not started now may hold acknowledged records; folders={folders} "
            f"do=start once with --agents {max(beyond)} and stop it, which stores them"
        )
