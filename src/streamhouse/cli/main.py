"""Main: the `streamhouse` command, its sub-commands, and error output.

Owns the tree of commands; one line and an exit code for every error Leaves each command to its own module, which is
imported when the command is called or listed
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.exceptions import TyperException

from streamhouse import __version__
from streamhouse.cli.output import print_error
from streamhouse.cli.typer_setup import CONTEXT, Command, CommandGroup, help_text
from streamhouse.errors import (
    AccessDenied,
    ConcurrentTransactions,
    GroupNotFound,
    Misconfigured,
    NonEmptyGroup,
    NotAuthenticated,
    OffsetOutOfRange,
    StreamhouseError,
    SubjectNotSoftDeleted,
    TransactionalIdNotFound,
    UnknownKey,
    UnknownSubject,
    UnknownTopic,
    UnknownUser,
    UnknownVersion,
)

FAILED = 1
MISUSED = 2
HINTS: Final[Mapping[type[StreamhouseError], str]] = {
    UnknownTopic: "; see which there are with: streamhouse topics list",
    NotAuthenticated: "; log in with --user and --password-file, or with --token-file",
    AccessDenied: "; an administrator can allow it with: streamhouse acls create",
    UnknownUser: "; see which there are with: streamhouse users list",
    UnknownKey: "; see which there are with: streamhouse keys list",
    UnknownSubject: "; see which there are with: streamhouse schemas list",
    UnknownVersion: "; see which there are with: streamhouse schemas list --all",
    SubjectNotSoftDeleted: "; delete it without --permanent first",
    GroupNotFound: "; see which there are with: streamhouse groups list",
    NonEmptyGroup: "; stop its consumers, or wait until their sessions expire, then try again",
    ConcurrentTransactions: "; it completes when the leaders of its partitions have written the markers",
    TransactionalIdNotFound: "; see which there are with: streamhouse transactions list",
    OffsetOutOfRange: "; start at an offset between them, or with --from-beginning",
}


_COMMANDS_PACKAGE: Final = "streamhouse.cli.commands"


@dataclass(frozen=True, slots=True)
class Single:
    """A command without a group: a function of a module below `commands`, and the name of its help text there."""

    module: str
    short_help: str
    function: str = ""
    """The name of the module, unless given."""
    help: str = "HELP"

    def add_to(self, parent: typer.Typer, name: str) -> None:
        module = import_module(f"{_COMMANDS_PACKAGE}.{self.module}")
        function = getattr(module, self.function or self.module)
        parent.command(name, cls=Command, help=getattr(module, self.help), short_help=self.short_help)(function)


@dataclass(frozen=True, slots=True)
class Group:
    """A group of commands: a Typer of a module."""

    module: str
    attribute: str = "app"
    package: str = _COMMANDS_PACKAGE

    def add_to(self, parent: typer.Typer, name: str) -> None:
        parent.add_typer(getattr(import_module(f"{self.package}.{self.module}"), self.attribute), name=name)


COMMANDS: Final[Mapping[str, Single | Group]] = {
    "up": Single("agent", "Run an agent.", function="up"),
    "topics": Group("topics"),
    "produce": Single("produce", "Write records to a topic."),
    "consume": Single("consume", "Read a topic."),
    "search": Single("search", "Find records of a topic."),
    "groups": Group("groups"),
    "lag": Single("lag", "Show how far consumer groups are behind."),
    "transactions": Group("transactions"),
    "schemas": Group("schemas"),
    "agents": Group("cluster"),
    "partitions": Group("partitions"),
    "doctor": Single("cluster", "Check the health of every agent.", function="doctor"),
    "top": Single("top", "Watch the cluster."),
    "whoami": Single("users", "Show your principal.", function="whoami", help="WHOAMI_HELP"),
    "users": Group("users"),
    "keys": Group("users", attribute="keys"),
    "acls": Group("acls"),
    "roles": Group("acls", attribute="roles"),
    "quotas": Group("quotas"),
    "tenants": Group("tenants"),
    "segments": Group("segments"),
    "wal": Group("wal"),
    "config": Group("agent"),
    "pipelines": Group("pipelines"),
    "tables": Group("tables"),
    "sql": Group("command", package="streamhouse.cli.sql"),
    "maintain": Group("spark_jobs"),
    "copy": Single("spark_jobs", "Copy a topic to another topic.", function="copy", help="COPY_HELP"),
    "restore": Single("spark_jobs", "Load a table or files into a topic.", function="restore", help="RESTORE_HELP"),
    "recover": Single("recover", "Rebuild a lost or outdated metadata database."),
    "mcp": Single("mcp", "Serve the cluster to an assistant, read only."),
    "spark": Group("spark"),
    "dev": Group("dev"),
}


class Commands(Mapping[str, Any]):
    """The commands by their names; each is imported and built when it is looked up."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            parent = typer.Typer(rich_markup_mode=None)
            COMMANDS[name].add_to(parent, name)
            self._built[name] = typer.main.get_group(parent).commands[name]
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Root(CommandGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(
                given, prog_name, complete_var, standalone_mode=False, windows_expand_args=windows_expand_args, **extra
            )
        except Exception as error:
            if "--debug" in given:
                raise
            code = _report(error)
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else 0)


def _report(error: Exception) -> int:
    """Print an error and return the exit code."""
    if isinstance(error, TyperException):
        return _report_misuse(error)
    if isinstance(error, StreamhouseError):
        hint = next((text for kind, text in HINTS.items() if isinstance(error, kind)), "")
        print_error(f"{error}{hint}")
        return MISUSED if isinstance(error, Misconfigured) else FAILED
    if isinstance(error, typer.Abort):
        print_error("stopped; nothing was done")
        return FAILED
    if isinstance(error, OSError) and error.filename is not None:
        print_error(f"{(error.strerror or 'failed').lower()}; path={error.filename}")
        return FAILED
    print_error(f"unexpected {type(error).__name__}: {error}; --debug before the command shows where")
    return FAILED


def _report_misuse(error: TyperException) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command: its help is the message
        typer.echo(error.format_message())
        return MISUSED
    text = error.format_message().rstrip(".")
    see = f"; see: {context.command_path} --help" if context is not None else ""
    print_error(text[:1].lower() + text[1:] + see)
    return error.exit_code


app = typer.Typer(
    name="streamhouse",
    cls=Root,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings=CONTEXT,
    help=help_text(
        "StreamHouse: event streaming with the Kafka protocol and records in object storage.",
        "streamhouse up",
        "streamhouse topics create orders --partitions 3",
        "streamhouse produce orders hello",
        "streamhouse consume orders",
    ),
)


def _print_version(show: bool) -> None:
    if show:
        typer.echo(f"streamhouse {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")] = False,
) -> None:
    pass


def main() -> None:
    app(prog_name="streamhouse")
