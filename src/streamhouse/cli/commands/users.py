"""Commands `streamhouse users …` and `streamhouse keys …`: users with passwords, and API keys."""

import sys
from typing import Annotated, Final

import msgspec
import typer

from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, AsJson, Yes, confirm, http_addresses
from streamhouse.cli.output import Column, format_time, print_json, print_line, print_note, print_result, print_table
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.client.security_types import KeyInfo, Me, NewKey, UserInfo
from streamhouse.config import parse_number
from streamhouse.errors import Misconfigured

app = command_group("Create, list and delete users, and change passwords.")
keys = command_group("Create, list and revoke API keys.")

MAX_PASSWORD_BYTES: Final = 64 * 1024
UserName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.", show_default=False)]


# --- users


@app.command(
    "create",
    cls=Command,
    help=help_text(
        "Create a user who logs in with a password: over Kafka with SCRAM or PLAIN, over HTTP with Basic. Asks for "
        "the password twice, or reads it from stdin.",
        "streamhouse users create alice",
        "streamhouse users create alice --password-stdin < password.txt",
    ),
)
def create(
    context: typer.Context,
    name: UserName,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the new user's password from stdin.")
    ] = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    deps = dependencies_of(context)
    created = run(_create(deps, http_addresses(agents), name, new_password(name, from_stdin=password_stdin)))
    print_result(msgspec.to_builtins(created), f"created the user {created.name}", as_json)
    if not as_json:
        print_note(f"allow something with: streamhouse acls create --allow User:{created.name} --operation read …")


def new_password(name: str, *, from_stdin: bool) -> str:
    if from_stdin:
        password = sys.stdin.read(MAX_PASSWORD_BYTES).rstrip("\r\n")
    elif sys.stdin.isatty():
        password = str(typer.prompt(f"Password for {name}", hide_input=True, confirmation_prompt=True, err=True))
    else:
        raise Misconfigured("there is no terminal to ask for the password; give it with --password-stdin")
    if not password:
        raise Misconfigured("the password is empty")
    return password


async def _create(deps: Dependencies, address: str, name: str, password: str) -> UserInfo:
    async with deps.http(address) as http:
        return await deps.security(http).create_user(name, password)


@app.command(
    "passwd",
    cls=Command,
    help=help_text(
        "Give a user another password. Everybody may change their own. Open Kafka connections of the user end within a "
        "second, and its clients have to log in with the new one.",
        "streamhouse users passwd alice",
        "streamhouse users passwd alice --password-stdin < password.txt",
    ),
)
def passwd(
    context: typer.Context,
    name: UserName,
    password_stdin: Annotated[bool, typer.Option("--password-stdin", help="Read the new password from stdin.")] = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    deps = dependencies_of(context)
    run(_passwd(deps, http_addresses(agents), name, new_password(name, from_stdin=password_stdin)))
    print_result({"changed": name}, f"changed the password of {name}", as_json)


async def _passwd(deps: Dependencies, address: str, name: str, password: str) -> None:
    async with deps.http(address) as http:
        await deps.security(http).change_password(name, password)


WHOAMI_HELP: Final = help_text(
    "Show your principal according to the agent: its user, its groups, and the "
    "address and listener of your connection.",
    "streamhouse whoami",
    "streamhouse whoami --user alice --password-file alice.txt --json",
)


def whoami(context: typer.Context, agents: Agents = None, as_json: AsJson = False) -> None:
    me = run(_who_am_i(dependencies_of(context), http_addresses(agents)))
    if as_json:
        print_json(msgspec.to_builtins(me))
        return
    print_line(me.principal)
    print_note(
        "; ".join(
            (
                f"from {me.host} through the listener {me.listener}",
                *([f"groups {', '.join(me.groups)}"] if me.groups else []),
                *(["may do everything: there is no access control"] if me.unrestricted else []),
            )
        )
    )


async def _who_am_i(deps: Dependencies, address: str) -> Me:
    async with deps.http(address) as http:
        return await deps.security(http).who_am_i()


@app.command(
    "list", cls=Command, help=help_text("List the users.", "streamhouse users list", "streamhouse users list --json")
)
def list_(context: typer.Context, agents: Agents = None, as_json: AsJson = False) -> None:
    users = run(_list(dependencies_of(context), http_addresses(agents)))
    if as_json:
        print_json({"users": [msgspec.to_builtins(user) for user in users]})
    elif users:
        columns = [Column("user", style="cyan", fold=True), Column("mechanisms", drop=2), Column("created", drop=1)]
        rows = [[user.name, ", ".join(user.mechanisms), format_time(user.created_at_ms)] for user in users]
        print_table(columns, rows)
    else:
        print_line("no users yet; create one with: streamhouse users create NAME")


async def _list(deps: Dependencies, address: str) -> list[UserInfo]:
    async with deps.http(address) as http:
        return await deps.security(http).users()


@app.command(
    "delete",
    cls=Command,
    help=help_text(
        "Delete a user, with its API keys and roles. Asks for confirmation unless --yes is given. Rules that name it "
        "stay.",
        "streamhouse users delete alice",
    ),
)
def delete(
    context: typer.Context, name: UserName, yes: Yes = False, agents: Agents = None, as_json: AsJson = False
) -> None:
    deps = dependencies_of(context)
    confirm(f"Delete the user {name}, its keys and its roles?", yes)
    run(_delete(deps, http_addresses(agents), name))
    print_result({"deleted": name}, f"deleted the user {name}", as_json)


async def _delete(deps: Dependencies, address: str, name: str) -> None:
    async with deps.http(address) as http:
        await deps.security(http).delete_user(name)


# --- API keys


@keys.command(
    "create",
    cls=Command,
    help=help_text(
        "Create an API key, which logs in as a user: as a bearer token over HTTP and gRPC, with SASL OAUTHBEARER over "
        "Kafka. It is shown once.",
        "streamhouse keys create",
        "streamhouse keys create --for User:etl --description 'nightly load' --expires 90d",
    ),
)
def create_key(
    context: typer.Context,
    principal: Annotated[
        str | None,
        typer.Option("--for", metavar="User:NAME", help="Principal of the key. Default: you.", show_default=False),
    ] = None,
    description: Annotated[str, typer.Option("--description", metavar="TEXT", help="What the key is for.")] = "",
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="TIME", help="How long it is valid, such as 90d. Default: until revoked."),
    ] = None,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    deps, address = dependencies_of(context), http_addresses(agents)
    created = run(_create_key(deps, address, principal, description, _seconds(expires)))
    if as_json:
        print_json(msgspec.to_builtins(created))
    else:
        print_note(f"key {created.key.key_id} of {created.key.principal}; it is shown only once:")
        print_line(created.api_key)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_number(text, "_s")
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}, such as 90d", param_hint="--expires") from None


async def _create_key(
    deps: Dependencies, address: str, principal: str | None, description: str, ttl_s: float | None
) -> NewKey:
    async with deps.http(address) as http:
        return await deps.security(http).create_key(principal, description=description, ttl_s=ttl_s)


@keys.command(
    "list", cls=Command, help=help_text("List the API keys.", "streamhouse keys list", "streamhouse keys list --json")
)
def list_keys(context: typer.Context, agents: Agents = None, as_json: AsJson = False) -> None:
    found_keys = run(_list_keys(dependencies_of(context), http_addresses(agents)))
    if as_json:
        print_json({"keys": [msgspec.to_builtins(key) for key in found_keys]})
    elif found_keys:
        columns = [
            Column("key", style="cyan"),
            Column("principal", fold=True),
            Column("description", drop=2, fold=True),
            Column("created", drop=3),
            Column("expires", drop=1),
        ]
        print_table(columns, [_key_row(key) for key in found_keys])
    else:
        print_line("no API keys yet; create one with: streamhouse keys create")


def _key_row(key: KeyInfo) -> list[str]:
    expires = "never" if key.expires_at_ms is None else format_time(key.expires_at_ms)
    return [key.key_id, key.principal, key.description, format_time(key.created_at_ms), expires]


async def _list_keys(deps: Dependencies, address: str) -> list[KeyInfo]:
    async with deps.http(address) as http:
        return await deps.security(http).keys()


@keys.command(
    "revoke",
    cls=Command,
    help=help_text(
        "Revoke an API key. Logins with it fail from now on.",
        "streamhouse keys revoke 0f1e2d3c4b5a6978",
    ),
)
def revoke(
    context: typer.Context,
    key_id: Annotated[
        str, typer.Argument(metavar="KEY_ID", help="Id of the key, as shown by `keys list`.", show_default=False)
    ],
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    run(_revoke(dependencies_of(context), http_addresses(agents), key_id))
    print_result({"revoked": key_id}, f"revoked the key {key_id}", as_json)


async def _revoke(deps: Dependencies, address: str, key_id: str) -> None:
    async with deps.http(address) as http:
        await deps.security(http).revoke_key(key_id)
