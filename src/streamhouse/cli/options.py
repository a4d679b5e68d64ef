"""Options that several commands share, their defaults, and completion of names.

`--agents` names the agents in every command. Commands that use the Kafka protocol ask these agents for their Kafka
addresses; the hidden option `--bootstrap` gives such addresses directly.
"""

import asyncio
import os
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.typer_setup import ADDRESSES
from streamhouse.client.credentials import Credentials
from streamhouse.config import Address, load_settings, parse_address
from streamhouse.config.exposure import http_listeners, kafka_listeners
from streamhouse.errors import StreamhouseError

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_COMPLETION_TIMEOUT_S = 1.0

Agents = Annotated[
    str | None,
    typer.Option(
        "--agents",
        metavar=ADDRESSES,
        help="HTTP addresses of agents. Default: $STREAMHOUSE_AGENTS, then `http.listen` (127.0.0.1:8080).",
        show_default=False,
    ),
]
Bootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap", "-b", metavar="HOST:PORT", hidden=True, help="Kafka addresses, instead of --agents."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
DataFolder = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help="Directory of the embedded stores and the disk WAL.")
]
MetadataUrl = Annotated[
    str | None,
    typer.Option("--metadata", metavar="URL", help="Metadata store URL. Default: SQLite in the data directory."),
]
StoreUrl = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="Object store URL. Default: a directory in the data directory."),
]
SettingFlags = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting of `streamhouse config show`; may be repeated."),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file. Default: $STREAMHOUSE_CONFIG, then streamhouse.toml in the current directory.",
        show_default=False,
    ),
]


def _completing_dependencies() -> Dependencies:
    """Dependencies with the environment's credentials: during completion, typed options are not known."""
    deps = Dependencies()
    deps.credentials = Credentials.from_environment(os.environ).for_agents(os.environ.get("STREAMHOUSE_AGENTS", ""))
    return deps


def complete_topic(incomplete: str) -> list[str]:
    """Return names for the shell; none if no agent responds in time."""
    return _complete(_topic_names(), incomplete)


async def _topic_names() -> list[str]:
    deps = _completing_dependencies()
    async with deps.admin(await _kafka_addresses(deps, None), timeout_s=_COMPLETION_TIMEOUT_S) as admin:
        return [topic.name for topic in await admin.topics()]


def complete_group(incomplete: str) -> list[str]:
    return _complete(_group_names(), incomplete)


async def _group_names() -> list[str]:
    deps = _completing_dependencies()
    async with deps.admin(await _kafka_addresses(deps, None), timeout_s=_COMPLETION_TIMEOUT_S) as admin:
        return [group.name for group in await deps.groups(admin).all()]


def complete_transactional_id(incomplete: str) -> list[str]:
    return _complete(_transactional_ids(), incomplete)


async def _transactional_ids() -> list[str]:
    async with _completing_dependencies().http(http_addresses(None)) as http:
        return [transaction.transactional_id for transaction in await http.transactions()]


def _complete(names: Coroutine[Any, Any, list[str]], incomplete: str) -> list[str]:
    try:
        return [name for name in run(asyncio.wait_for(names, _COMPLETION_TIMEOUT_S)) if name.startswith(incomplete)]
    except (StreamhouseError, TimeoutError, typer.BadParameter):
        return []


TopicName = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_group, show_default=False)]
TransactionalId = Annotated[
    str, typer.Argument(metavar="TRANSACTIONAL_ID", autocompletion=complete_transactional_id, show_default=False)
]


def http_addresses(agents: str | None) -> str:
    """Return the HTTP addresses of agents, separated by commas."""
    agents = agents or os.environ.get("STREAMHOUSE_AGENTS")
    if not agents:
        spec = http_listeners(load_settings({}, os.environ))[0]
        return ("https://" if spec.protocol.has_tls else "") + _reachable(spec.advertised or spec.bind)
    return ",".join(_checked_agent(part.strip().removeprefix("http://").rstrip("/")) for part in agents.split(","))


def kafka_addresses(context: typer.Context, agents: str | None, bootstrap: str | None) -> str:
    """Return Kafka addresses, separated by commas: those of `--bootstrap`, or the agents' own."""
    if bootstrap is not None:
        return ",".join(_checked(part, "--bootstrap", "127.0.0.1:9092") for part in bootstrap.split(","))
    return run(_kafka_addresses(dependencies_of(context), agents))


async def _kafka_addresses(deps: Dependencies, agents: str | None) -> str:
    """Ask these agents for their Kafka addresses; without agents, the settings have the address."""
    if not agents and not os.environ.get("STREAMHOUSE_AGENTS"):
        spec = kafka_listeners(load_settings({}, os.environ))[0]
        return _reachable(spec.advertised or spec.bind)
    async with deps.http(http_addresses(agents)) as http:
        return await http.bootstrap()


def confirm(question: str, skip: bool) -> None:
    """Ask for confirmation unless `skip`; ends the command if the answer is no."""
    if not skip:
        typer.confirm(question, abort=True, err=True)


def pairs(texts: list[str], flag: str) -> list[tuple[str, str]]:
    """Parse the values `key=value` of an option that may be repeated."""
    parts = [text.partition("=") for text in texts]
    for (key, equals, _), text in zip(parts, texts, strict=True):
        if not key or not equals:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=flag)
    return [(key, value) for key, _, value in parts]


def setting_flags(settings: list[str] | None, named: Mapping[str, object]) -> dict[str, object]:
    """Combine `--set` with the settings that have their own options; an option that is not given is None."""
    return dict(pairs(settings or [], "--set")) | {name: value for name, value in named.items() if value is not None}


def _reachable(address: Address) -> str:
    """Return the address at which this machine reaches a listener."""
    return str(address._replace(host=_EVERYWHERE.get(address.host, address.host)))


def _checked_agent(text: str) -> str:
    """Return the address, which is TLS if it says https://."""
    scheme = "https://" if text.startswith("https://") else ""
    return scheme + _checked(text.removeprefix(scheme), "--agents", "127.0.0.1:8080")


def _checked(text: str, flag: str, example: str) -> str:
    try:
        return str(parse_address(text))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}, such as {example}", param_hint=flag) from None
