"""Commands `streamhouse quotas set|list`: limits of users, client ids and addresses."""

from typing import Annotated

import msgspec
import typer

from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, AsJson, http_addresses, pairs
from streamhouse.cli.output import Column, print_json, print_line, print_table
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.client.security_types import QuotaInfo
from streamhouse.config import parse_number
from streamhouse.model.quota import ADDRESS_LIMITS, CLIENT_LIMITS, DEFAULT

app = command_group("Set and list quotas.")


def _entity(name: str | None, *, is_default: bool) -> str | None:
    return DEFAULT if is_default else name


@app.command(
    "set",
    cls=Command,
    help=help_text(
        f"Set limits of a user, a client id, both together, or an address: {', '.join(CLIENT_LIMITS)}; for an address "
        f"{', '.join(ADDRESS_LIMITS)}. An empty value removes a limit, others stay.",
        "streamhouse quotas set --for-user alice producer_byte_rate=10MiB consumer_byte_rate=20MiB",
        "streamhouse quotas set --default-user request_percentage=50",
        "streamhouse quotas set --for-user alice producer_byte_rate=",
    ),
)
def set_(
    context: typer.Context,
    limits: Annotated[list[str], typer.Argument(metavar="LIMIT=VALUE…", help="Limits per second, or percent.")],
    for_user: Annotated[str | None, typer.Option("--for-user", metavar="NAME", help="Limits of a user.")] = None,
    client_id: Annotated[str | None, typer.Option("--client-id", metavar="ID", help="Limits of a client id.")] = None,
    ip: Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="Limits of an address.")] = None,
    default_user: Annotated[bool, typer.Option("--default-user", help="Default limits of users.")] = False,
    default_client_id: Annotated[
        bool, typer.Option("--default-client-id", help="Default limits of client ids.")
    ] = False,
    default_ip: Annotated[bool, typer.Option("--default-ip", help="Default limits of addresses.")] = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    named = {
        "user": _entity(for_user, is_default=default_user),
        "client-id": _entity(client_id, is_default=default_client_id),
        "ip": _entity(ip, is_default=default_ip),
    }
    entity = {kind: name for kind, name in named.items() if name is not None}
    if not entity:
        raise typer.BadParameter("name an entity with --for-user, --client-id or --ip", param_hint="--for-user")
    changes = {name: _limit(name, value) for name, value in pairs(limits, "LIMIT")}
    quota = run(_set(dependencies_of(context), http_addresses(agents), entity, changes))
    if as_json:
        print_json(msgspec.to_builtins(quota))
    else:
        _show([quota])


def _limit(name: str, text: str) -> float | None:
    """Parse a limit; None removes it."""
    if not text:
        return None
    try:
        return float(parse_number(text, "_bytes" if name.endswith("_byte_rate") else None))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}", param_hint=name) from None


async def _set(deps: Dependencies, address: str, entity: dict[str, str], limits: dict[str, float | None]) -> QuotaInfo:
    async with deps.http(address) as http:
        return await deps.security(http).set_quota(entity, limits)


@app.command("list", cls=Command, help=help_text("List the quotas.", "streamhouse quotas list --json"))
def list_(context: typer.Context, agents: Agents = None, as_json: AsJson = False) -> None:
    quotas = run(_list(dependencies_of(context), http_addresses(agents)))
    if as_json:
        print_json({"quotas": [msgspec.to_builtins(quota) for quota in quotas]})
    elif quotas:
        _show(quotas)
    else:
        print_line("no quotas yet; set one with: streamhouse quotas set")


async def _list(deps: Dependencies, address: str) -> list[QuotaInfo]:
    async with deps.http(address) as http:
        return await deps.security(http).quotas()


def _show(quotas: list[QuotaInfo]) -> None:
    columns = [Column("for", style="cyan", fold=True), Column("limits", fold=True)]
    rows = [
        [
            ", ".join(f"{kind} {name}" for kind, name in quota.entity.items()),
            ", ".join(f"{name}={value:.15g}" for name, value in quota.limits.items()) or "none",
        ]
        for quota in quotas
    ]
    print_table(columns, rows)
