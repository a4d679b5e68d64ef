"""Options: the flags that several commands share, and what they default to.

Owns        names and help of shared flags; which agent a command talks to; completion of names
Leaves      settings to `config`
"""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from streamhouse.cli.dependencies import Dependencies, run
from streamhouse.config import load_settings, parse_address
from streamhouse.errors import StreamhouseError

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_COMPLETION_TIMEOUT_S = 1.0

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="Kafka bootstrap address. Default: `kafka.listen` (127.0.0.1:9092).",
        show_default=False,
    ),
]
HttpAddress = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        help="HTTP address of an agent. Default: `http.listen` (127.0.0.1:8080).",
        show_default=False,
    ),
]
Agents = Annotated[
    str | None,
    typer.Option(
        "--agents",
        metavar="HOST:PORT,…",
        help="HTTP addresses of agents. Default: $STREAMHOUSE_AGENTS, then `http.listen` (127.0.0.1:8080).",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file. Default: $STREAMHOUSE_CONFIG, then streamhouse.toml in the current directory.",
        show_default=False,
    ),
]


def complete_topic(incomplete: str) -> list[str]:
    """Names for the shell; an agent that doesn't answer at once gives none."""
    try:
        return [name for name in run(_topic_names()) if name.startswith(incomplete)]
    except (StreamhouseError, typer.BadParameter):
        return []


async def _topic_names() -> list[str]:
    async with Dependencies().admin(bootstrap_address(None), timeout_s=_COMPLETION_TIMEOUT_S) as admin:
        return [topic.name for topic in await admin.topics()]


def complete_group(incomplete: str) -> list[str]:
    try:
        return [name for name in run(_group_names()) if name.startswith(incomplete)]
    except (StreamhouseError, typer.BadParameter):
        return []


async def _group_names() -> list[str]:
    doors = Dependencies()
    async with doors.admin(bootstrap_address(None), timeout_s=_COMPLETION_TIMEOUT_S) as admin:
        return [group.name for group in await doors.groups(admin).all()]


def complete_transactional_id(incomplete: str) -> list[str]:
    try:
        return [name for name in run(_transactional_ids()) if name.startswith(incomplete)]
    except (StreamhouseError, TimeoutError, typer.BadParameter):
        return []


async def _transactional_ids() -> list[str]:
    async with asyncio.timeout(_COMPLETION_TIMEOUT_S), Dependencies().http(http_address(None)) as http:
        return [each.transactional_id for each in await http.transactions()]


TopicName = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_group, show_default=False)]
TransactionalId = Annotated[
    str, typer.Argument(metavar="TRANSACTIONAL_ID", autocompletion=complete_transactional_id, show_default=False)
]


def bootstrap_address(given: str | None) -> str:
    """The address to connect to, or several with commas."""
    if given is None:
        kafka = load_settings({}, os.environ).kafka
        return _reachable(kafka.advertise or kafka.listen)
    return ",".join(_checked(part, "--bootstrap") for part in given.split(","))


def http_address(given: str | None) -> str:
    if given is None:
        http = load_settings({}, os.environ).http
        return _reachable(http.advertise or http.listen)
    return _checked(given.removeprefix("http://").rstrip("/"), "--http")


def http_addresses(given: str | None) -> str:
    """Several agents, with commas."""
    given = given or os.environ.get("STREAMHOUSE_AGENTS")
    if not given:
        return http_address(None)
    return ",".join(_checked(part.strip().removeprefix("http://").rstrip("/"), "--agents") for part in given.split(","))


def pairs(texts: list[str], flag: str) -> list[tuple[str, str]]:
    """`k=v` of a flag that may be repeated."""
    found = [text.partition("=") for text in texts]
    for (key, equals, _), text in zip(found, texts, strict=True):
        if not key or not equals:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=flag)
    return [(key, value) for key, _, value in found]


def _reachable(listen: str) -> str:
    """Where a listener can be reached from this machine."""
    address = parse_address(listen)
    return str(address._replace(host=_EVERYWHERE.get(address.host, address.host)))


def _checked(text: str, flag: str) -> str:
    try:
        return str(parse_address(text))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}, such as 127.0.0.1:9092", param_hint=flag) from None
