"""Dev: `streamhouse dev cluster` runs a whole cluster on this machine, for trying things out and for tests.

Owns        its flags, the screen, and the one line of JSON
Leaves      starting and ending processes to `dev`
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec import structs

from streamhouse.cli.commands.agent import configured_name
from streamhouse.cli.dependencies import dependencies_of
from streamhouse.cli.options import pairs
from streamhouse.cli.output import Column, counted, on_terminal, print_line, print_note, print_properties, print_table
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.config import LeaseSettings, parse_number, without_password
from streamhouse.errors import ChildFailed

if TYPE_CHECKING:
    from streamhouse.dev.cluster import ClusterReady, RunningAgent
    from streamhouse.dev.security import LocalSecurity

app = command_group("Tools for development on one machine.")

MAX_AGENTS: Final = 50


@app.command(
    "cluster",
    cls=Command,
    help=help_text(
        "Run a cluster on this machine until Ctrl-C: PostgreSQL, an S3 server and several diskless agents, all on "
        "loopback. Data in DIR is kept for the next start. An agent that is killed stays down, so that you can watch "
        "the failover; use --restart to restart it.",
        "streamhouse dev cluster",
        "streamhouse dev cluster --agents 5 --dir /tmp/five --lease-ttl 3s",
        "streamhouse dev cluster --secure",
        "streamhouse dev cluster --kafka-port 9092 --http-port 8080 --set flush.age_s=5s",
        "STREAMHOUSE_METADATA_URL=postgresql://me@db/facts streamhouse dev cluster",
    ),
)
def cluster(
    context: typer.Context,
    agents: Annotated[int, typer.Option(min=1, max=MAX_AGENTS, help="Number of agents.")] = 3,
    folder: Annotated[str, typer.Option("--dir", metavar="DIR", help="Directory for data and logs.")] = "./cluster",
    lease_ttl: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Lease duration, such as 3s. Default: 30s.",
            show_default=False,
        ),
    ] = None,
    kafka_port: Annotated[
        int, typer.Option(metavar="BASE", min=0, max=65_535, help="First Kafka port; 0 picks free ones.")
    ] = 0,
    http_port: Annotated[
        int, typer.Option(metavar="BASE", min=0, max=65_535, help="First HTTP port; 0 picks free ones.")
    ] = 0,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Setting of every agent; may be repeated."),
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Restart processes that exit.")] = False,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="TLS, logins and access rules on every listener, with certificates and a first user made here.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only one line of JSON when the cluster is ready.")
    ] = False,
) -> None:
    settings = {"wal.kind": "object"} | lease_settings(lease_ttl) | dict(pairs(setting or [], "--set"))
    if not as_json:
        print_note(f"starting PostgreSQL, an S3 server and {counted(agents, 'agent')} in {folder} …")
    try:
        dependencies_of(context).run_cluster(
            agents=agents,
            folder=Path(folder),
            settings=settings,
            kafka_port=kafka_port,
            http_port=http_port,
            restart=restart,
            secure=secure,
            on_ready=print_ready_json if as_json else show,
            on_event=print_note,
        )
    except ChildFailed as error:
        for line in error.last_lines:
            print_note(f"  {line}")
        raise
    if not as_json:
        print_line("stopped")


def lease_settings(ttl: str | None) -> dict[str, str]:
    """Return settings for a lease duration; the other lease settings are scaled in proportion."""
    if ttl is None:
        return {}
    try:
        ttl_s = parse_number(ttl, "_s")
        if not ttl_s > 0:
            raise ValueError
    except ValueError:
        raise typer.BadParameter(f"{ttl!r} is not a duration such as 30s", param_hint="--lease-ttl") from None
    defaults = structs.asdict(LeaseSettings())
    scale = ttl_s / defaults["ttl_s"]
    scaled = {name: value * scale for name, value in defaults.items() if name.endswith("_s")}
    return {f"lease.{name}": f"{value:g}" for name, value in scaled.items()}


def print_ready_json(ready: "ClusterReady") -> None:
    """With `--secure` the line contains the password, for programs that log in."""
    security = ready.security
    login = (
        {}
        if security is None
        else {"security": {"ca": str(security.ca), "user": security.user, "password": security.password}}
    )
    typer.echo(
        json.dumps(
            {
                "bootstrap": ready.bootstrap,
                "agents": [
                    {
                        "node": agent.node,
                        "pid": agent.pid,
                        "kafka": str(agent.kafka),
                        "http": str(agent.http),
                        "grpc": str(agent.grpc or ""),
                    }
                    for agent in ready.agents
                ],
                "postgres": ready.postgres,
                "s3": ready.s3,
                **login,
            }
        )
    )


def show(ready: "ClusterReady") -> None:
    print_line(f"a cluster of {counted(len(ready.agents), 'agent')} is running", bold=True)
    print_line()
    columns = [Column("agent", style="cyan"), Column("Kafka"), Column("HTTP"), Column("gRPC"), Column("pid", "right")]
    rows = [
        [str(agent.node), str(agent.kafka), _url(ready, agent), str(agent.grpc or "off"), str(agent.pid)]
        for agent in ready.agents
    ]
    print_table(columns, rows, indent=2)
    print_line()
    print_properties(
        [
            ("bootstrap", ready.bootstrap),
            ("PostgreSQL", without_password(ready.postgres)),
            ("S3", ready.s3),
            ("folder", str(ready.folder)),
            ("logs", str(ready.folder / "logs")),
        ]
    )
    print_line()
    if ready.security is not None:
        print_line("Clients need TLS and log in:", bold=True)
        for name, line in connection_hints(ready, ready.security):
            print_properties([(name.ljust(8), line)])
        print_line()
    print_line("Try, in another terminal:" if on_terminal() else "try:", dim=True)
    for line in hints(ready):
        print_line(f"  {line}", color="green")
    print_line()
    print_line("Ctrl-C stops everything; data in the folder is kept.", dim=True)


def _url(ready: "ClusterReady", agent: "RunningAgent") -> str:
    return f"{'http' if ready.security is None else 'https'}://{agent.http}"


def connection_hints(ready: "ClusterReady", security: "LocalSecurity") -> list[tuple[str, str]]:
    """Return how each client connects. Passwords are in files that only you can read."""
    first = ready.agents[0]
    kafka, url, folder = str(first.kafka), _url(ready, first), security.folder
    return [
        ("user", f"{security.user}, password in {security.password_file}"),
        (
            "shell",
            f". {ready.environment_file}    # for the command line, Python and Spark",
        ),
        ("curl", f"curl -K {security.curl_file} {url}/v1/topics"),
        ("kcat", f"kcat -F {security.librdkafka_file} -b {kafka} -L"),
        ("Java", f"kafka-topics.sh --bootstrap-server {kafka} --command-config {security.java_file} --list"),
        (
            "aiokafka",
            f"security_protocol='SASL_SSL', ssl_context=ssl.create_default_context(cafile='{security.ca}'), "
            f"sasl_mechanism='SCRAM-SHA-512', sasl_plain_username='{security.user}', "
            f"sasl_plain_password=Path('{folder / 'password'}').read_text().strip()",
        ),
    ]


def hints(ready: "ClusterReady") -> list[str]:
    name, first = configured_name(sys.argv[0]), ready.agents[0]
    agents = str(first.http) if ready.security is None else _url(ready, first)
    return [
        f"{name} topics create orders --partitions 6 --agents {agents}",
        f"{name} produce orders hello --agents {agents}",
        f"{name} consume orders --follow --agents {agents}",
        f"kill -9 {first.pid}    # an agent dies; the others take over when its leases end",
        f". {ready.environment_file}; {name} up --kafka 127.0.0.1:0 --http 127.0.0.1:0 --grpc 127.0.0.1:0 --data more"
        "    # another agent joins",
    ]
