"""Commands `streamhouse agents list|drain` and `streamhouse doctor`."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec.structs import replace

from streamhouse.cli.commands.support_bundle import write_bundle
from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, AsJson, http_addresses
from streamhouse.cli.output import (
    Column,
    StatusLine,
    count,
    counted,
    format_time,
    print_error,
    print_json,
    print_line,
    print_note,
    print_table,
)
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.client.types import AgentStatus, Finding
from streamhouse.clock import SystemClock
from streamhouse.errors import StreamhouseError, Unavailable

if TYPE_CHECKING:
    from streamhouse.client.cluster_client import AgentHealth, ClusterHealth
    from streamhouse.client.http import Http

app = command_group("List and drain agents.")

POLL_S: Final = 0.3
STATES: Final = {"live": "green", "draining": "yellow", "expired": "red", "recovering": "yellow"}


@app.command(
    "list",
    cls=Command,
    help=help_text(
        "List agents with addresses, state and number of partitions led.",
        "streamhouse agents list",
        "streamhouse agents list --agents 127.0.0.1:8081 --json",
    ),
)
def list_(context: typer.Context, agents: Agents = None, as_json: AsJson = False) -> None:
    listed = run(_list(dependencies_of(context), http_addresses(agents)))
    if as_json:
        print_json({"agents": [as_fields(agent) for agent in listed]})
    else:
        _show_agents(listed)


async def _list(deps: Dependencies, address: str) -> list[AgentStatus]:
    async with deps.http(address) as http:
        return await http.agents()


def as_fields(agent: AgentStatus) -> dict[str, object]:
    return {name: getattr(agent, name) for name in agent.__struct_fields__}


def _show_agents(agents: list[AgentStatus]) -> None:
    has_zones = any(agent.zone for agent in agents)
    columns = [
        Column("node", "right", style="cyan"),
        Column("state", paint=STATES),
        *([Column("zone")] if has_zones else []),
        Column("kafka"),
        Column("http", drop=1),
        Column("partitions", "right"),
        Column("groups' shards", "right", drop=2),
        Column("lease ends in", "right"),
        Column("since", drop=3),
        Column("wal", drop=4),
        Column("session", style="dim", drop=5),
    ]
    print_table(columns, [_row(agent, has_zones=has_zones) for agent in agents])
    alive = [agent for agent in agents if agent.is_alive]
    print_line(
        f"{counted(len(alive), 'agent')} alive, {counted(sum(a.partitions for a in agents), 'partition')} led", dim=True
    )


def _row(agent: AgentStatus, *, has_zones: bool) -> list[str]:
    return [
        str(agent.node),
        agent.state,
        *([agent.zone or "-"] if has_zones else []),
        agent.kafka,
        agent.http,
        count(agent.partitions),
        count(agent.shards),
        format_remaining(agent.expires_in_ms),
        format_time(agent.started_at_ms)[:19],
        agent.wal,
        agent.session,
    ]


def format_remaining(ms: int | None) -> str:
    """Time until a lease expires, or since it expired."""
    if ms is None:
        return "-"
    return f"{ms / 1000:.0f} s" if ms >= 0 else f"{-ms / 1000:.0f} s ago"


@app.command(
    "drain",
    cls=Command,
    help=help_text(
        "Move all partitions and groups of an agent to the others. The agent keeps serving requests and clients see no "
        "errors. Stopping an agent drains it, too.",
        "streamhouse agents drain 2 --wait",
        "streamhouse agents drain 2 --undo",
    ),
)
def drain(
    context: typer.Context,
    node: Annotated[
        int, typer.Argument(metavar="NODE", min=0, help="Node id, as shown by `agents list`.", show_default=False)
    ],
    undo: Annotated[bool, typer.Option("--undo", help="Make the agent eligible again.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the agent leads nothing.")] = False,
    timeout: Annotated[int, typer.Option("--timeout", metavar="S", min=1, help="Timeout, in seconds.")] = 300,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    if undo and wait:
        raise typer.BadParameter("there is nothing to wait for with --undo", param_hint="--wait")
    agent = run(
        _drain(dependencies_of(context), http_addresses(agents), node, undo=undo, wait_s=timeout if wait else None)
    )
    if as_json:
        print_json({"agent": as_fields(agent)})
    elif undo:
        print_line(f"agent {node} can lead partitions again", color="green")
    elif agent.partitions or agent.shards:
        print_line(f"agent {node} drains: {_left(agent)}; --wait waits for it, --undo stops it")
    else:
        print_line(
            f"agent {node} is drained: it leads nothing and can be stopped; --undo undoes it",
            color="green",
        )


async def _drain(deps: Dependencies, address: str, node: int, *, undo: bool, wait_s: float | None) -> AgentStatus:
    async with deps.http(address) as http:
        agent = _find(await http.drain(node, draining=not undo), node)
        return agent if wait_s is None else await _wait_until_drained(http, agent, wait_s)


async def _wait_until_drained(http: "Http", agent: AgentStatus, wait_s: float) -> AgentStatus:
    """Poll until the agent leads nothing, or has ended."""
    clock, line = SystemClock(), StatusLine()
    deadline = clock.monotonic() + wait_s
    try:
        while agent.partitions or agent.shards:
            line.show(f"agent {agent.node} drains: {_left(agent)}")
            if clock.monotonic() >= deadline:
                raise Unavailable(
                    f"agent {agent.node} is not drained after {wait_s:g} s; draining continues: {_left(agent)}"
                )
            await clock.sleep(POLL_S)
            agent = next((each for each in await http.agents() if each.session == agent.session), _as_ended(agent))
    finally:
        line.clear()
    return agent


def _as_ended(agent: AgentStatus) -> AgentStatus:
    return replace(agent, state="ended", partitions=0, shards=0)


def _left(agent: AgentStatus) -> str:
    return f"{counted(agent.partitions, 'partition')} and {counted(agent.shards, 'shard')} of groups left"


def _find(agents: list[AgentStatus], node: int) -> AgentStatus:
    for agent in agents:
        if agent.node == node and agent.is_alive:
            return agent
    raise Unavailable(f"agent {node} ended meanwhile")


WARNINGS: Final = 1
FAILURES: Final = 2
PAINT: Final = {"ok": "green", "warning": "yellow", "failure": "bold red"}

HELP = help_text(
    "Check the health of every agent: stores, clocks, sessions, leases, flushes, orphaned objects. "
    "Exit code 0: healthy; 1: warnings; 2: failures, or no agent answers.",
    "streamhouse doctor",
    "streamhouse doctor --json --agents 127.0.0.1:8081",
    "streamhouse doctor --bundle support.tar.gz",
)


def doctor(
    context: typer.Context,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle",
            metavar="FILE",
            dir_okay=False,
            show_default=False,
            help="Also write a support archive: checks, metrics, topics, groups, pipelines; no records, no secrets.",
        ),
    ] = None,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    if bundle is not None:
        missing = run(write_bundle(dependencies_of(context), http_addresses(agents), bundle))
        print_note(f"wrote {bundle}" + "".join(f"; without {name}: {why}" for name, why in missing.items()))
    try:
        checkup = run(dependencies_of(context).cluster_client(http_addresses(agents)).examine())
    except StreamhouseError as error:
        print_error(str(error))
        raise typer.Exit(FAILURES) from None
    if as_json:
        print_json(_as_json(checkup))
    else:
        _show_health(checkup)
    raise typer.Exit(exit_code(_all(checkup)))


def exit_code(findings: Iterable[Finding]) -> int:
    verdicts = {finding.verdict for finding in findings}
    return FAILURES if "failure" in verdicts else WARNINGS if "warning" in verdicts else 0


def findings_of(health: "AgentHealth") -> Sequence[Finding]:
    """Return the findings of an agent; for one that does not respond, the reason as a warning."""
    if health.examination is None:
        return [Finding(name="http", verdict="warning", text=health.why)]
    return health.examination.own


def _all(checkup: "ClusterHealth") -> list[Finding]:
    return [*checkup.shared, *(finding for health in checkup.agents for finding in findings_of(health))]


def _show_health(checkup: "ClusterHealth") -> None:
    _show_findings("cluster", checkup.shared)
    for health in checkup.agents:
        _show_findings(f"agent {health.agent.node}, {health.agent.http}", findings_of(health))
    everything = _all(checkup)
    warnings = sum(finding.verdict == "warning" for finding in everything)
    failures = sum(finding.verdict == "failure" for finding in everything)
    if failures or warnings:
        text = f"{counted(failures, 'failure')}, {counted(warnings, 'warning')}"
        print_line(f"{text} in {counted(len(everything), 'check')}", bold=True, color="red" if failures else "yellow")
    else:
        print_line(f"all is well: {counted(len(everything), 'check')}", bold=True, color="green")


def _show_findings(title: str, findings: Sequence[Finding]) -> None:
    if findings:
        print_line(title, bold=True)
        columns = [Column("verdict", paint=PAINT), Column("check", style="cyan"), Column("result", fold=True)]
        print_table(columns, [[finding.verdict, finding.name, finding.text] for finding in findings], indent=2)
        print_line()


def _as_json(checkup: "ClusterHealth") -> dict[str, object]:
    return {
        "verdict": {0: "ok", WARNINGS: "warning", FAILURES: "failure"}[exit_code(_all(checkup))],
        "cluster": [_fields(finding) for finding in checkup.shared],
        "agents": [
            {
                "node": health.agent.node,
                "http": health.agent.http,
                "version": health.examination.version if health.examination is not None else None,
                "checks": [_fields(finding) for finding in findings_of(health)],
            }
            for health in checkup.agents
        ],
    }


def _fields(finding: Finding) -> dict[str, object]:
    return {name: getattr(finding, name) for name in finding.__struct_fields__}
