"""Login: the options of every command that connects to agents, and the credentials from options and environment.

`typer_setup.Command` adds the options to commands that take `--agents`. Passwords and tokens are in files or in the
environment, never in arguments, which every user of the machine can read.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Final

import typer

from streamhouse.client.credentials import VARIABLES, Credentials, read_secret_file
from streamhouse.errors import Misconfigured

META_KEY: Final = "streamhouse.login"
"""Key of the option values in a context's `meta`."""


def _keep(context: typer.Context, param: Any, value: str | None) -> None:
    """`param` is typer's: `CallbackParam` is private."""
    if value is not None:
        context.meta.setdefault(META_KEY, {})[param.name.removeprefix("cert_")] = value


def _option(flag: str, metavar: str, text: str) -> Any:
    return typer.Option(
        flag, metavar=metavar, help=text, show_default=False, expose_value=False, callback=_keep, rich_help_panel=None
    )


def login_options(taken: Iterable[str]) -> list[Any]:
    """The login options as parameters; `--key` is called `--cert-key` where the command has its own `--key`."""
    excluded = "key" if "--key" in taken else "cert_key"
    return [param for param in _options() if param.name != excluded]


@cache
def _options() -> list[Any]:
    app = typer.Typer(add_completion=False)

    @app.command()
    def login(
        user: Annotated[str | None, _option("--user", "NAME", "User to log in as. Default: $STREAMHOUSE_USER.")] = None,
        password_file: Annotated[
            str | None,
            _option("--password-file", "FILE", "Password of --user. Default: $STREAMHOUSE_PASSWORD, then a prompt."),
        ] = None,
        token_file: Annotated[
            str | None,
            _option("--token-file", "FILE", "Bearer token or API key, instead of a user. Default: $STREAMHOUSE_TOKEN."),
        ] = None,
        ca: Annotated[
            str | None,
            _option("--ca", "FILE", "PEM file of the agents' authority; implies TLS. Default: $STREAMHOUSE_CA."),
        ] = None,
        cert: Annotated[
            str | None, _option("--cert", "FILE", "PEM file of this client's certificate. Default: $STREAMHOUSE_CERT.")
        ] = None,
        key: Annotated[
            str | None, _option("--key", "FILE", "PEM file of its private key. Default: $STREAMHOUSE_KEY.")
        ] = None,
        cert_key: Annotated[
            str | None, _option("--cert-key", "FILE", "PEM file of --cert's private key. Default: $STREAMHOUSE_KEY.")
        ] = None,
    ) -> None:
        pass

    command: Any = typer.main.get_command(app)
    return [param for param in command.params if param.name != "help"]


def credentials_of(context: typer.Context) -> Credentials:
    """Return the credentials from options and environment; prompts for a missing password on a terminal."""
    given: Mapping[str, str] = context.meta.get(META_KEY, {})
    agents = str(context.params.get("agents") or os.environ.get("STREAMHOUSE_AGENTS") or "")
    return login_credentials(given, os.environ).for_agents(agents)


def login_credentials(given: Mapping[str, str], environ: Mapping[str, str]) -> Credentials:
    """A login in the options replaces the one of the environment."""
    known = {name: environ[name] for name in VARIABLES if environ.get(name)}
    if "token_file" in given:
        known = _without_login(known) | {"STREAMHOUSE_TOKEN": read_secret_file(given["token_file"], "--token-file")}
    if "user" in given:
        known = _without_login(known, "TOKEN", "TOKEN_FILE") | {"STREAMHOUSE_USER": given["user"]}
    if "password_file" in given:
        known["STREAMHOUSE_PASSWORD"] = read_secret_file(given["password_file"], "--password-file")
    known |= {f"STREAMHOUSE_{name.upper()}": given[name] for name in ("ca", "cert", "key") if name in given}
    if known.get("STREAMHOUSE_USER") and not any(name.startswith("STREAMHOUSE_PASSWORD") for name in known):
        known["STREAMHOUSE_PASSWORD"] = _ask(known["STREAMHOUSE_USER"])
    return Credentials.from_environment(known)


def _without_login(known: Mapping[str, str], *names: str) -> dict[str, str]:
    removed = names or ("USER", "PASSWORD", "PASSWORD_FILE")
    return {name: value for name, value in known.items() if name.removeprefix("STREAMHOUSE_") not in removed}


def _ask(user: str) -> str:
    if not sys.stdin.isatty():
        raise Misconfigured(
            f"a user logs in with a password, and there is none; user={user};"
            " give --password-file, or STREAMHOUSE_PASSWORD in the environment"
        )
    return str(typer.prompt(f"Password of {user}", hide_input=True, err=True))
