"""transactions list, describe, abort."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import httpx
import msgspec
import pytest

from streamhouse.client.types import Transaction, TransactionAborted, TransactionPartition
from tests.cli.conftest import Run
from tests.cli.fakes import World
from tests.cli.test_cluster import a_partition, an_agent, responding

PLACES = [TransactionPartition(topic="orders", partition=0), TransactionPartition(topic="orders", partition=2)]


def a_transaction(name: str = "payments-1", **changes: Any) -> Transaction:
    results: dict[str, Any] = {
        "transactional_id": name,
        "producer_id": 17,
        "epoch": 4,
        "state": "Ongoing",
        "timeout_ms": 60_000,
        "changed_at_ms": 1_700_000_000_000,
        "started_at_ms": 1_700_000_000_000,
        "open_for_ms": 95_000,
        "partitions": PLACES,
        **changes,
    }
    return Transaction(**results)


def closed(name: str, state: str = "CompleteCommit") -> Transaction:
    return a_transaction(name, state=state, started_at_ms=None, open_for_ms=None, partitions=[])


@pytest.fixture
def requests(world: World) -> list[httpx.Request]:
    """An open transaction and a closed one; returns the requests to agents."""
    requests: list[httpx.Request] = []

    def shown(body: object) -> Callable[[httpx.Request], httpx.Response]:
        def respond(request: httpx.Request) -> httpx.Response:
            requests.append(request)
            return httpx.Response(200, content=msgspec.json.encode(body))

        return respond

    aborted = TransactionAborted(aborted=True, before=a_transaction(), after=closed("payments-1", "Empty"))
    world.http["/v1/transactions"] = shown({"transactions": [closed("audit"), a_transaction()], "cursor": None})
    world.http["/v1/transactions/payments-1"] = shown(a_transaction())
    world.http["/v1/transactions/payments-1/abort"] = shown(aborted)
    return requests


@pytest.mark.usefixtures("requests")
def test_transactions_are_listed(run: Run) -> None:
    lines = [line.split() for line in run("transactions", "list").stdout.splitlines()]
    assert lines[1][:8] == ["audit", "CompleteCommit", "-", "60.0", "s", "0", "17", "4"]
    assert lines[2][:9] == ["payments-1", "Ongoing", "95.0", "s", "60.0", "s", "2", "17", "4"]
    assert lines[3] == ["2", "transactional", "ids,", "1", "open"]
    result = json.loads(run("transactions", "list", "--json").stdout)["transactions"]
    assert (result[0]["open_for_ms"], result[1]["partitions"][1]) == (None, {"topic": "orders", "partition": 2})


@pytest.mark.parametrize(
    ("flags", "params"),
    [
        ([], {"open_for_ms": "-1", "limit": "1000"}),
        (["--open"], {"open_for_ms": "0", "limit": "1000"}),
        (["--longer-than", "2min", "--limit", "5"], {"open_for_ms": "120000", "limit": "5"}),
        (["--state", "completeABORT"], {"open_for_ms": "-1", "state": "CompleteAbort", "limit": "1000"}),
    ],
)
def test_filters_are_the_agents_to_apply(
    run: Run, requests: list[httpx.Request], flags: list[str], params: dict[str, str]
) -> None:
    assert run("transactions", "list", *flags).exit_code == 0
    assert dict(requests[0].url.params) == params


def test_lists_go_on_over_pages(run: Run, world: World) -> None:
    pages = {"": ("a", "c=1"), "c=1": ("b", None)}

    def page(request: httpx.Request) -> httpx.Response:
        name, cursor = pages[request.url.params.get("cursor", "")]
        return httpx.Response(200, content=msgspec.json.encode({"transactions": [closed(name)], "cursor": cursor}))

    world.http["/v1/transactions"] = page
    result = json.loads(run("transactions", "list", "--json").stdout)["transactions"]
    assert [each["transactional_id"] for each in result] == ["a", "b"]
    assert "there may be more; --limit" in run("transactions", "list", "--limit", "1").stdout


@pytest.mark.parametrize(
    ("flags", "said"), [(["--state", "open"], "is none of Empty, Ongoing"), (["--longer-than", "long"], "such as 90s")]
)
def test_a_filter_that_is_none_says_what_to_write(run: Run, flags: list[str], said: str) -> None:
    result = run("transactions", "list", *flags)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def test_nothing_to_list_is_said(run: Run, world: World) -> None:
    world.http["/v1/transactions"] = responding(transactions=[], cursor=None)
    assert "transactional.id" in run("transactions", "list").stdout
    assert run("transactions", "list", "--open").stdout == "no transaction matches\n"
    assert json.loads(run("transactions", "list", "--json").stdout) == {"transactions": []}


@pytest.mark.usefixtures("requests")
def test_one_is_described_with_its_partitions(run: Run) -> None:
    lines = [line.split() for line in run("transactions", "describe", "payments-1").stdout.splitlines()]
    assert lines[:4] == [
        ["transactional", "id", "payments-1"],
        ["state", "Ongoing"],
        ["producer", "17,", "epoch", "4"],
        ["timeout", "60.0", "s"],
    ]
    assert lines[6:] == [["open", "for", "95.0", "s"], [], ["topic", "partition"], ["orders", "0"], ["orders", "2"]]
    assert json.loads(run("transactions", "describe", "payments-1", "--json").stdout)["epoch"] == 4


def test_an_abort_asks_first(run: Run, requests: list[httpx.Request]) -> None:
    refused = run("transactions", "abort", "payments-1", stdin="n\n")
    assert (refused.exit_code, requests) == (1, [])
    assert "stopped; nothing was done" in refused.stderr
    done = run("transactions", "abort", "payments-1", stdin="y\n")
    assert (done.exit_code, [each.method for each in requests]) == (0, ["POST"])
    said = "fenced payments-1, producer 17 epoch 4; aborted its transaction, open for 95.0 s in 2 partitions\n"
    assert done.stdout.endswith(said)
    result = json.loads(run("transactions", "abort", "payments-1", "--yes", "--json").stdout)
    assert (result["aborted"], result["after"]["state"]) == (True, "Empty")


@pytest.mark.parametrize(
    ("before", "said"),
    [("PrepareCommit", "its transaction was already committed"), ("Empty", "it had no open transaction")],
)
def test_an_abort_says_what_there_was(run: Run, world: World, before: str, said: str) -> None:
    world.http["/v1/transactions/a"] = responding()
    world.http["/v1/transactions/a/abort"] = lambda request: httpx.Response(
        200,
        content=msgspec.json.encode(
            TransactionAborted(aborted=False, before=closed("a", before), after=closed("a", "Empty"))
        ),
    )
    assert said in run("transactions", "abort", "a", "-y").stdout


def test_ids_may_have_any_characters(run: Run, world: World) -> None:
    name = "a/b ü?#%"
    paths = []

    def respond(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.raw_path.decode())
        return httpx.Response(200, content=msgspec.json.encode(closed(name)))

    world.http[f"/v1/transactions/{name}"] = respond
    assert json.loads(run("transactions", "describe", name, "--json").stdout)["transactional_id"] == name
    assert [unquote(path.removeprefix("/v1/transactions/")) for path in paths] == [name]
    assert "/" not in paths[0].removeprefix("/v1/transactions/")


@pytest.mark.parametrize("command", [["describe"], ["abort", "--yes"]])
def test_an_unknown_id_is_said_in_one_line(run: Run, world: World, command: list[str]) -> None:
    problem = {"title": "TransactionalIdNotFound", "detail": "no such transactional id; transactional_id='never'"}
    for path in ("/v1/transactions/never", "/v1/transactions/never/abort"):
        world.http[path] = lambda request: httpx.Response(404, json=problem)
    result = run("transactions", *command, "never")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: no such transactional id; transactional_id='never';"
        " see which there are with: streamhouse transactions list\n"
    )


def test_an_end_that_waits_for_leaders_is_said_to_be_decided(run: Run, world: World) -> None:
    problem = {"title": "ConcurrentTransactions", "detail": "the transaction before is still being ended"}
    world.http["/v1/transactions/a/abort"] = lambda request: httpx.Response(503, json=problem)
    result = run("transactions", "abort", "a", "--yes")
    assert (result.exit_code, "still being ended; it completes when" in result.stderr) == (1, True)


def test_partitions_that_are_held_back_are_reported(run: Run, world: World) -> None:
    world.http["/v1/agents"] = responding(agents=[an_agent(1)])
    world.http["/v1/partitions"] = responding(
        partitions=[a_partition(0, last_stable_offset=1200), a_partition(1), a_partition(2, last_stable_offset=1500)]
    )
    lines = run("partitions", "list").stdout.splitlines()
    assert [line.split()[-3] for line in lines[1:4]] == ["1,200", "?", "1,500"]
    assert lines[-1] == "1 partition held back by open transactions; see: streamhouse transactions list --open"
