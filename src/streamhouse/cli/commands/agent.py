"""`streamhouse up` runs an agent in this process; `streamhouse config show` prints every setting and its source."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from streamhouse import __version__
from streamhouse.cli.dependencies import dependencies_of
from streamhouse.cli.options import AsJson, ConfigFile, DataFolder, MetadataUrl, SettingFlags, StoreUrl, setting_flags
from streamhouse.cli.output import (
    Column,
    console,
    counted,
    on_terminal,
    print_json,
    print_line,
    print_note,
    print_table,
    size,
)
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.clock import SystemClock
from streamhouse.config import (
    Explained,
    Settings,
    explain_settings,
    exposure_warning,
    load_settings,
    without_password,
)
from streamhouse.config.exposure import http_listeners
from streamhouse.config.fields import parse_address

if TYPE_CHECKING:
    from streamhouse.agent import AgentReady
    from streamhouse.process_manager.manager import AgentsReady

HELP: Final = help_text(
    "Run an agent with Kafka, HTTP and gRPC listeners until Ctrl-C.",
    "streamhouse up",
    "streamhouse up --data /var/lib/streamhouse --fsync always",
    "streamhouse up --kafka 0.0.0.0:9092 --set flush.age_s=5s",
    "streamhouse up --config production.toml",
    "streamhouse up --secure",
    "streamhouse up --agents auto --metadata postgresql://db/streamhouse --store s3://records",
)
_DEFAULT_KAFKA: Final = "127.0.0.1:9092"


def up(
    context: typer.Context,
    data: DataFolder = None,
    kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Kafka listener; port 0 picks a free one.")
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="HTTP listener; port 0 picks a free one.")
    ] = None,
    grpc: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="gRPC listener; port 0 picks a free one; '' turns it off.")
    ] = None,
    metadata: MetadataUrl = None,
    store: StoreUrl = None,
    wal: Annotated[
        Literal["disk", "object"] | None,
        typer.Option(help="Write-ahead log: where an append is durable before it is acknowledged."),
    ] = None,
    fsync: Annotated[
        Literal["always", "interval", "never"] | None, typer.Option(help="When the disk WAL calls fsync.")
    ] = None,
    setting: SettingFlags = None,
    agents: Annotated[
        str,
        typer.Option(
            metavar="N|auto",
            help="Run several agents, on consecutive ports; auto: one per core. They need PostgreSQL and --store.",
        ),
    ] = "1",
    health: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="With --agents: health page of all agents. Default: the port after HTTP's."
        ),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="TLS, logins and access rules on all listeners; certificates, a user and its password are made in "
            "DIR/security at the first start.",
        ),
    ] = False,
    config: ConfigFile = None,
) -> None:
    named = {
        "agent.data": data,
        "kafka.listen": kafka,
        "http.listen": http,
        "grpc.listen": grpc,
        "metadata.url": metadata,
        "store.url": store,
        "wal.kind": wal,
        "wal.fsync": fsync,
    }
    flags = setting_flags(setting, named)
    settings = load_settings(flags, os.environ, config)
    if secure:
        flags = _secure_flags(settings) | flags
        settings = load_settings(flags, os.environ, config)
    if agents == "1":
        dependencies_of(context).run_agent(settings, on_ready=lambda ready: show_ready(ready, settings))
    else:
        _run_agents(context, settings, agents, flags, config, health)
    print_line("stopped")


def _secure_flags(settings: Settings) -> dict[str, object]:
    """Return the settings of a secure agent; creates missing certificates, secrets and the first user."""
    from streamhouse.dev.security import prepare_security

    security = prepare_security(Path(settings.agent.data) / "security", clock=SystemClock())
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in security.client_environment.items())
    print_note(f"the user {security.user} may do everything; its password is in {security.password_file}")
    print_note(f"other terminals log in with: export {variables}")
    print_note(f"clients log in with the files in {security.folder}: client.properties, librdkafka.conf, curl.conf")
    return dict(security.settings)


def _run_agents(
    context: typer.Context,
    settings: Settings,
    agents: str,
    flags: Mapping[str, object],
    config: Path | None,
    health: str | None,
) -> None:
    from streamhouse.process_manager.manager import ManagerPlan
    from streamhouse.process_manager.plan import agent_count

    try:
        page = None if health is None else parse_address(health)
    except ValueError:
        raise typer.BadParameter(f"{health!r} is not HOST:PORT", param_hint="--health") from None
    plan = ManagerPlan(
        settings=settings,
        agents=agent_count(agents),
        flags={name: str(value) for name, value in flags.items()},
        config=config,
        environment=os.environ,
        health=page,
    )
    dependencies_of(context).run_agents(plan, on_ready=show_agents, on_event=print_note)


def show_agents(ready: "AgentsReady") -> None:
    print_line(f"StreamHouse {__version__}: {counted(len(ready.agents), 'agent')} are running", bold=True)
    print_table(
        [Column("agent"), Column("kafka"), Column("http")],
        [[str(agent.number), agent.kafka, agent.http] for agent in ready.agents],
    )
    print_line(f"health of all: http://{ready.health}/health/ready", dim=True)


def show_ready(ready: "AgentReady", settings: Settings) -> None:
    warning = exposure_warning(settings)
    if on_terminal():
        _show_panel(ready, settings, warning)
    else:
        title, facts, hints = startup_screen(ready, settings)
        width = max(len(name) for name, _ in facts)
        lines = [title, *(f"  {name.ljust(width)}  {value}" for name, value in facts), *(f"  {hint}" for hint in hints)]
        typer.echo("\n".join([*lines, *([f"  WARNING: {warning}"] if warning else [])]))


def startup_screen(ready: "AgentReady", settings: Settings) -> tuple[str, list[tuple[str, str]], list[str]]:
    """Return a title, properties, and commands to try."""
    url = f"{'https' if http_listeners(settings)[0].protocol.has_tls else 'http'}://{ready.http}"
    recovered = f", {counted(ready.recovered_records, 'record')} recovered" if ready.recovered_records else ""
    facts = [
        ("Kafka", str(ready.kafka)),
        ("HTTP", url),
        *([("gRPC", str(ready.grpc))] if ready.grpc is not None else []),
        ("data", str(ready.data)),
        ("metadata", without_password(ready.metadata_url)),
        ("records", without_password(ready.store_url)),
        ("WAL", f"{_describe_wal(ready.wal, settings)}{recovered}"),
        ("agent", f"node {ready.node_id}, session {ready.session_id}"),
    ]
    agents = url if url.startswith("https") else str(ready.http)
    option = "" if str(ready.kafka) == _DEFAULT_KAFKA else f" --agents {agents}"
    name = configured_name(sys.argv[0])
    hints = [
        f"{name} topics create orders --partitions 3{option}",
        f"{name} produce orders hello{option}",
        f"{name} consume orders --follow{option}",
        f"curl {url}/metrics",
    ]
    return f"StreamHouse {__version__} is running", facts, hints


def configured_name(program: str) -> str:
    """Return the name of this command if the shell finds it, else its path."""
    if os.path.basename(program) != "streamhouse" or shutil.which("streamhouse"):
        return "streamhouse"
    path = os.path.relpath(program)
    return path if not path.startswith("..") else program


def _describe_wal(kind: str, settings: Settings) -> str:
    """`kind` is the agent's choice if the settings leave it open."""
    if kind != "disk":
        return kind
    policy = {
        "always": "fsync before every ack",
        "interval": f"fsync every {settings.wal.fsync_interval_ms} ms",
        "never": "no fsync: a power cut loses what the system had not written",
    }
    return f"disk, {policy[settings.wal.fsync]}"


def _show_panel(ready: "AgentReady", settings: Settings, warning: str) -> None:
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    title, facts, hints = startup_screen(ready, settings)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(name, Text(value, style="bold" if name in ("Kafka", "HTTP", "gRPC") else ""))
    body = Group(
        grid,
        *([Text(f"\nWARNING: {warning}", style="bold red")] if warning else []),
        Text("\nTry, in another terminal:", style="dim"),
        *(Text(f"  {hint}", style="green") for hint in hints),
        Text("\nCtrl-C flushes and stops.", style="dim"),
    )
    console().print(
        Panel(
            body, title=Text(title, style="bold"), title_align="left", border_style="dim", expand=False, padding=(1, 2)
        )
    )


app = command_group("Show the settings.")


@app.command(
    "show",
    cls=Command,
    help=help_text(
        "Show every setting with its value, source and meaning. Precedence: options of `streamhouse up`, environment "
        "variables (STREAMHOUSE_WAL_FSYNC), streamhouse.toml ([wal] fsync), defaults.",
        "streamhouse config show",
        "STREAMHOUSE_FLUSH_AGE_S=5s streamhouse config show --json",
    ),
)
def show(config: ConfigFile = None, as_json: AsJson = False) -> None:
    explained = explain_settings({}, os.environ, config)
    if as_json:
        print_json([asdict(setting) for setting in explained])
    elif on_terminal():
        _show_sections(explained)
    else:
        columns = [Column("setting"), Column("value"), Column("source"), Column("about")]
        print_table(columns, [[s.name, _value(s), _source(s), s.about] for s in explained])


def _show_sections(explained: Iterable[Explained]) -> None:
    from rich.table import Table
    from rich.text import Text

    screen = console()
    name_width = 28
    for section, settings in groupby(explained, key=lambda setting: setting.name.partition(".")[0]):
        table = Table.grid(padding=(0, 2), expand=False)
        table.add_column(style="cyan", width=name_width)
        table.add_column(ratio=1, overflow="fold")
        for setting in settings:
            value = Text(_value(setting), style="bold" if setting.source != "default" else "")
            if setting.source != "default":
                value.append(f"  from {_source(setting)}", style="yellow")
            table.add_row(f"  {setting.name.partition('.')[2]}", value)
            table.add_row("", Text(setting.about, style="dim"))
        print_line(f"[{section}]", bold=True)
        screen.print(table)
        print_line()
    print_line("Set with STREAMHOUSE_<SECTION>_<FIELD>, or in streamhouse.toml below [section].", dim=True)


def _value(setting: Explained) -> str:
    """Format the value; byte sizes also in KiB, MiB or GiB."""
    if isinstance(setting.value, bool):
        return str(setting.value).lower()
    if isinstance(setting.value, int) and setting.name.endswith("_bytes"):
        return f"{setting.value} ({size(setting.value)})"
    if isinstance(setting.value, float):
        return f"{setting.value:g}"
    return str(setting.value) if setting.value != "" else "-"


def _source(setting: Explained) -> str:
    return setting.where or "default"
