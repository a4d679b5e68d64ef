"""Doctor: asks every agent whether all is well, and says so with an exit code.

Owns        the page, the JSON and the exit codes
Leaves      the checks to the agents, comparing them to the client
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import typer

from streamhouse.cli.doors import doors_of, run
from streamhouse.cli.help import described
from streamhouse.cli.options import AsJson, HttpAddress, http_address
from streamhouse.cli.output import Column, fail, print_json, print_table, say
from streamhouse.cli.words import counted
from streamhouse.client.types import Finding
from streamhouse.errors import StreamhouseError

if TYPE_CHECKING:
    from streamhouse.client.cluster_client import AgentHealth, Checkup

WARNINGS: Final = 1
FAILURES: Final = 2
PAINT: Final = {"ok": "green", "warning": "yellow", "failure": "bold red"}

HELP = described(
    "Ask every agent whether all is well: stores, clocks, sessions and leases, flushing, objects that should be gone. "
    "Exit code 0: all is well; 1: warnings; 2: failures, or nobody answers.",
    "streamhouse doctor",
    "streamhouse doctor --json --http 127.0.0.1:8081",
)


def doctor(context: typer.Context, http: HttpAddress = None, as_json: AsJson = False) -> None:
    try:
        checkup = run(doors_of(context).cluster_client(http_address(http)).examine())
    except StreamhouseError as error:
        fail(str(error))
        raise typer.Exit(FAILURES) from None
    if as_json:
        print_json(_as_json(checkup))
    else:
        _show_health(checkup)
    raise typer.Exit(exit_code(_all(checkup)))


def exit_code(findings: Iterable[Finding]) -> int:
    verdicts = {finding.verdict for finding in findings}
    return FAILURES if "failure" in verdicts else WARNINGS if "warning" in verdicts else 0


def findings_of(examined: "AgentHealth") -> Sequence[Finding]:
    """An agent that says nothing was counted where agents are compared; here the reason stands."""
    if examined.told is None:
        return [Finding(name="http", verdict="warning", text=examined.why)]
    return examined.told.own


def _all(checkup: "Checkup") -> list[Finding]:
    return [*checkup.shared, *(finding for each in checkup.agents for finding in findings_of(each))]


def _show_health(checkup: "Checkup") -> None:
    _show_findings("cluster", checkup.shared)
    for each in checkup.agents:
        _show_findings(f"agent {each.agent.node}, {each.agent.http}", findings_of(each))
    everything = _all(checkup)
    warnings = sum(finding.verdict == "warning" for finding in everything)
    failures = sum(finding.verdict == "failure" for finding in everything)
    if failures or warnings:
        text = f"{counted(failures, 'failure')}, {counted(warnings, 'warning')}"
        say(f"{text} in {counted(len(everything), 'check')}", bold=True, color="red" if failures else "yellow")
    else:
        say(f"all is well: {counted(len(everything), 'check')}", bold=True, color="green")


def _show_findings(title: str, findings: Sequence[Finding]) -> None:
    if findings:
        say(title, bold=True)
        columns = [Column("verdict", paint=PAINT), Column("check", style="cyan"), Column("found", fold=True)]
        print_table(columns, [[each.verdict, each.name, each.text] for each in findings], indent=2)
        say()


def _as_json(checkup: "Checkup") -> dict[str, object]:
    return {
        "verdict": {0: "ok", WARNINGS: "warning", FAILURES: "failure"}[exit_code(_all(checkup))],
        "cluster": [_fields(finding) for finding in checkup.shared],
        "agents": [
            {
                "node": each.agent.node,
                "http": each.agent.http,
                "version": each.told.version if each.told is not None else None,
                "checks": [_fields(finding) for finding in findings_of(each)],
            }
            for each in checkup.agents
        ],
    }


def _fields(finding: Finding) -> dict[str, object]:
    return {name: getattr(finding, name) for name in finding.__struct_fields__}
