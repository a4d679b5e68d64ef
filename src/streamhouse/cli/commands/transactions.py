"""Commands `streamhouse transactions list|describe|abort`."""

from typing import Annotated

import typer

from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, AsJson, TransactionalId, Yes, confirm, http_addresses
from streamhouse.cli.output import (
    Column,
    count,
    counted,
    format_time,
    print_json,
    print_line,
    print_properties,
    print_result,
    print_table,
    seconds,
)
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.client.types import Transaction, TransactionAborted
from streamhouse.config import parse_number

app = command_group("List, describe and abort transactions.")

PAINT = {
    "Ongoing": "yellow",
    "PrepareCommit": "yellow",
    "PrepareAbort": "yellow",
    "CompleteCommit": "green",
    "CompleteAbort": "red",
}
STATES = ("Empty", *PAINT)


@app.command(
    "list",
    cls=Command,
    help=help_text(
        "List transactional ids with their producers and open transactions.",
        "streamhouse transactions list",
        "streamhouse transactions list --open --longer-than 1min",
        "streamhouse transactions list --state CompleteAbort --json",
    ),
)
def list_(
    context: typer.Context,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help=f"Only transactions in this state: {', '.join(STATES)}.",
            show_default=False,
        ),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Only ongoing or completing transactions.")] = False,
    longer_than: Annotated[
        str | None,
        typer.Option(
            "--longer-than",
            metavar="TIME",
            help="Only transactions open for longer, such as 90s or 5min.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of transactions.")] = 1000,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    open_for_ms = _open_for_ms(open_, longer_than)
    transactions = run(_list(dependencies_of(context), http_addresses(agents), _state(state), open_for_ms, limit))
    if as_json:
        print_json({"transactions": [as_fields(transaction) for transaction in transactions]})
    elif transactions:
        _show(transactions, limit)
    elif state is None and open_for_ms < 0:
        print_line("no transactional producers yet; a Kafka client is one when it has a transactional.id")
    else:
        print_line("no transaction matches")


def _state(text: str | None) -> str | None:
    """Return Kafka's spelling of a state."""
    if text is None:
        return None
    for state in STATES:
        if state.lower() == text.lower():
            return state
    raise typer.BadParameter(f"{text!r} is none of {', '.join(STATES)}", param_hint="--state")


def _open_for_ms(is_open: bool, longer_than: str | None) -> int:
    """Return the minimum time open; 0 for all open transactions, -1 for all."""
    if longer_than is None:
        return 0 if is_open else -1
    try:
        return round(parse_number(longer_than, "_s") * 1000)
    except ValueError as error:
        raise typer.BadParameter(f"{longer_than!r}: {error}, such as 90s", param_hint="--longer-than") from None


async def _list(deps: Dependencies, address: str, state: str | None, open_for_ms: int, limit: int) -> list[Transaction]:
    async with deps.http(address) as http:
        return await http.transactions(state=state, open_for_ms=open_for_ms, limit=limit)


def _show(transactions: list[Transaction], limit: int) -> None:
    columns = [
        Column("transactional id", style="cyan", fold=True),
        Column("state", paint=PAINT),
        Column("open for", "right"),
        Column("timeout", "right", drop=1),
        Column("partitions", "right"),
        Column("producer", "right", drop=2),
        Column("epoch", "right", drop=3),
        Column("changed", drop=4),
    ]
    print_table(columns, [_row(transaction) for transaction in transactions])
    print_line(
        f"{counted(len(transactions), 'transactional id')}, {count(sum(t.is_open for t in transactions))} open",
        dim=True,
    )
    if len(transactions) == limit:
        print_line("there may be more; --limit shows them", dim=True)


def _row(transaction: Transaction) -> list[str]:
    return [
        transaction.transactional_id,
        transaction.state,
        open_for(transaction),
        seconds(transaction.timeout_ms / 1000),
        count(len(transaction.partitions)),
        str(transaction.producer_id),
        str(transaction.epoch),
        format_time(transaction.changed_at_ms),
    ]


def open_for(transaction: Transaction) -> str:
    return "-" if transaction.open_for_ms is None else seconds(transaction.open_for_ms / 1000)


def as_fields(transaction: Transaction) -> dict[str, object]:
    fields = {name: getattr(transaction, name) for name in transaction.__struct_fields__}
    return {**fields, "partitions": [{"topic": p.topic, "partition": p.partition} for p in transaction.partitions]}


# --- describe


@app.command(
    "describe",
    cls=Command,
    help=help_text(
        "Show a transactional id, its producer and the partitions of its open transaction.",
        "streamhouse transactions describe payments-1",
        "streamhouse transactions describe payments-1 --json",
    ),
)
def describe(
    context: typer.Context, transactional_id: TransactionalId, agents: Agents = None, as_json: AsJson = False
) -> None:
    transaction = run(_describe(dependencies_of(context), http_addresses(agents), transactional_id))
    if as_json:
        print_json(as_fields(transaction))
    else:
        _show_one(transaction)


async def _describe(deps: Dependencies, address: str, transactional_id: str) -> Transaction:
    async with deps.http(address) as http:
        return await http.transaction(transactional_id)


def _show_one(transaction: Transaction) -> None:
    facts = [
        ("transactional id", transaction.transactional_id),
        ("state", transaction.state),
        ("producer", f"{transaction.producer_id}, epoch {transaction.epoch}"),
        ("timeout", seconds(transaction.timeout_ms / 1000)),
        ("changed", format_time(transaction.changed_at_ms)),
    ]
    if transaction.started_at_ms is not None:
        facts += [("began", format_time(transaction.started_at_ms)), ("open for", open_for(transaction))]
    print_properties(facts)
    if transaction.partitions:
        print_line()
        columns = [Column("topic", style="cyan", fold=True), Column("partition", "right")]
        print_table(columns, [[partition.topic, str(partition.partition)] for partition in transaction.partitions])


# --- abort


@app.command(
    "abort",
    cls=Command,
    help=help_text(
        "Fence the producer of a transactional id and abort its open transaction, so that consumers can continue. "
        "A producer that is still running gets an error. Asks for confirmation unless --yes is given.",
        "streamhouse transactions abort payments-1",
        "streamhouse transactions abort payments-1 --yes",
    ),
)
def abort(
    context: typer.Context,
    transactional_id: TransactionalId,
    yes: Yes = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    confirm(f"Fence {transactional_id} and abort its open transaction?", yes)
    done = run(_abort(dependencies_of(context), http_addresses(agents), transactional_id))
    print_result(
        {"aborted": done.aborted, "before": as_fields(done.before), "after": as_fields(done.after)},
        _describe_abort(done),
        as_json,
    )


async def _abort(deps: Dependencies, address: str, transactional_id: str) -> TransactionAborted:
    async with deps.http(address) as http:
        return await http.abort_transaction(transactional_id)


def _describe_abort(done: TransactionAborted) -> str:
    before = done.before
    fenced = f"fenced {before.transactional_id}, producer {before.producer_id} epoch {before.epoch}"
    if done.aborted:
        partitions = counted(len(before.partitions), "partition")
        return f"{fenced}; aborted its transaction, open for {open_for(before)} in {partitions}"
    if before.state == "PrepareCommit":
        return f"{fenced}; its transaction was already committed"
    return f"{fenced}; it had no open transaction"
