"""Main: the `streamhouse` command, its sub-commands, and what becomes of errors.

Owns        the tree of commands; one line and an exit code for every error
Leaves      each command to its own module
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from typer.exceptions import TyperException

from streamhouse import __version__
from streamhouse.cli.commands import (
    acls,
    agent,
    cluster,
    consume,
    dev,
    groups,
    lag,
    mcp,
    partitions,
    pipelines,
    produce,
    quotas,
    recover,
    schemas,
    search,
    segments,
    spark,
    spark_jobs,
    tables,
    top,
    topics,
    transactions,
    users,
    wal,
)
from streamhouse.cli.output import print_error
from streamhouse.cli.sql import command
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
    AccessDenied: "; who administers the cluster allows it with: streamhouse acls create",
    UnknownUser: "; see which there are with: streamhouse users list",
    UnknownKey: "; see which there are with: streamhouse keys list",
    UnknownSubject: "; see which there are with: streamhouse schemas list",
    UnknownVersion: "; see which there are with: streamhouse schemas list --all",
    SubjectNotSoftDeleted: "; delete it without --permanent first",
    GroupNotFound: "; see which there are with: streamhouse groups list",
    NonEmptyGroup: "; stop its consumers, or wait until their sessions are over, then try again",
    ConcurrentTransactions: "; it is decided, and complete when the leaders of its partitions have the markers",
    TransactionalIdNotFound: "; see which there are with: streamhouse transactions list",
    OffsetOutOfRange: "; start at one between them, or with --from-beginning",
}


class Root(CommandGroup):
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


app.command("up", cls=Command, help=agent.HELP, short_help="Run an agent.")(agent.up)
app.add_typer(topics.app, name="topics")
app.command("produce", cls=Command, help=produce.HELP, short_help="Write records to a topic.")(produce.produce)
app.command("consume", cls=Command, help=consume.HELP, short_help="Read a topic.")(consume.consume)
app.command("search", cls=Command, help=search.HELP, short_help="Find records of a topic.")(search.search)
app.add_typer(groups.app, name="groups")
app.command("lag", cls=Command, help=lag.HELP, short_help="Show how far consumer groups are behind.")(lag.lag)
app.add_typer(transactions.app, name="transactions")
app.add_typer(schemas.app, name="schemas")
app.add_typer(cluster.app, name="agents")
app.add_typer(partitions.app, name="partitions")
app.command("doctor", cls=Command, help=cluster.HELP, short_help="Check the health of every agent.")(cluster.doctor)
app.command("top", cls=Command, help=top.HELP, short_help="Watch the cluster.")(top.top)
app.command("whoami", cls=Command, help=users.WHOAMI_HELP, short_help="Show who an agent takes you for.")(users.whoami)
app.add_typer(users.app, name="users")
app.add_typer(users.keys, name="keys")
app.add_typer(acls.app, name="acls")
app.add_typer(acls.roles, name="roles")
app.add_typer(quotas.app, name="quotas")
app.add_typer(segments.app, name="segments")
app.add_typer(wal.app, name="wal")
app.add_typer(agent.app, name="config")
app.add_typer(pipelines.app, name="pipelines")
app.add_typer(tables.app, name="tables")
app.add_typer(command.app, name="sql")
app.add_typer(spark_jobs.app, name="maintain")
app.command("copy", cls=Command, help=spark_jobs.COPY_HELP, short_help="Copy a topic to another topic.")(
    spark_jobs.copy
)
app.command("restore", cls=Command, help=spark_jobs.RESTORE_HELP, short_help="Load a table or files into a topic.")(
    spark_jobs.restore
)
app.command("recover", cls=Command, help=recover.HELP, short_help="Rebuild a lost or outdated metadata database.")(
    recover.recover
)
app.command("mcp", cls=Command, help=mcp.HELP, short_help="Serve the cluster to an assistant, read only.")(mcp.mcp)
app.add_typer(spark.app, name="spark")
app.add_typer(dev.app, name="dev")


def main() -> None:
    app(prog_name="streamhouse")
