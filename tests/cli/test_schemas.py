"""schemas, and produce and consume with them, against a live agent."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from streamhouse.cli.commands.schemas import parse_ref, parse_reference, read_schema
from streamhouse.cli.main import app
from streamhouse.client.types import SchemaRef, SchemaReference
from tests.support.agent import LiveAgent

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
WIDER = ORDER.replace("]", ', {"name": "who", "type": "string"}]')
Live = Callable[..., Result]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    flags = ["--set", "groups.initial_rebalance_delay_s=0"]
    with LiveAgent(tmp_path_factory.mktemp("schemas") / "data", *flags) as started:
        yield started


@pytest.fixture
def live(agent: LiveAgent) -> Live:
    def invoke(*args: str, stdin: str | None = None) -> Result:
        env = {"STREAMHOUSE_KAFKA_LISTEN": agent.bootstrap, "STREAMHOUSE_HTTP_LISTEN": agent.http}
        return CliRunner().invoke(app, list(args), input=stdin, env=env, prog_name="streamhouse")

    return invoke


@pytest.fixture
def order(tmp_path: Path) -> str:
    return written(tmp_path / "order.avsc", ORDER)


def written(file: Path, text: str) -> str:
    file.write_text(text)
    return str(file)


def output_of(result: Result) -> str:
    """Standard output of a command that went well."""
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_the_life_of_a_subject(live: Live, order: str, tmp_path: Path) -> None:
    assert output_of(live("schemas", "register", "life", order)).startswith("life version 1, id ")
    registered = json.loads(output_of(live("schemas", "register", "life", order, "--json")))
    assert (registered["subject"], registered["version"], registered["type"]) == ("life", 1, "AVRO")
    assert json.loads(output_of(live("schemas", "get", "life"))) == json.loads(ORDER)
    assert json.loads(output_of(live("schemas", "get", "life:1"))) == json.loads(ORDER)
    by_id = json.loads(output_of(live("schemas", "get", "--id", str(registered["id"]), "--json")))
    assert by_id["schema"] == registered["schema"]
    listed = json.loads(output_of(live("schemas", "list", "--prefix", "life", "--json")))
    assert [(each["subject"], each["version"]) for each in listed] == [("life", 1)]
    assert output_of(live("schemas", "list", "--prefix", "life")).splitlines()[0].split() == [
        "subject",
        "version",
        "id",
        "type",
        "references",
    ]
    wider = written(tmp_path / "wider.avsc", WIDER)
    output_of(live("schemas", "config", "life", "--set", "forward"))
    assert output_of(live("schemas", "check", "life", wider)) == "compatible: it may follow in life\n"
    assert "version 2" in output_of(live("schemas", "register", "life", wider))
    assert output_of(live("schemas", "delete", "life:1", "--yes")) == "deleted 1 version of life\n"
    assert json.loads(output_of(live("schemas", "delete", "life", "--yes", "--json"))) == {
        "subject": "life",
        "deleted": [2],
    }
    output_of(live("schemas", "delete", "life", "--permanent", "--yes"))
    assert live("schemas", "get", "life").stderr == (
        "error: unknown subject; subject=life; see which there are with: streamhouse schemas list\n"
    )


def test_a_schema_that_may_not_follow_is_reported_with_the_reason(live: Live, order: str, tmp_path: Path) -> None:
    output_of(live("schemas", "register", "strict", order))
    wider = written(tmp_path / "wider.avsc", WIDER)
    result = live("schemas", "check", "strict", wider)
    assert result.exit_code == 1
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in result.stdout
    assert result.stderr.startswith("error: incompatible with strict: change the schema, or the level with: ")
    assert json.loads(live("schemas", "check", "strict", wider, "--json").stdout)["compatible"] is False
    refused = live("schemas", "register", "strict", wider)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("error: incompatible schema; subject=strict why=/fields/1: ")


def test_levels_are_shown_set_and_reset(live: Live, order: str) -> None:
    assert output_of(live("schemas", "config")) == "all subjects: BACKWARD\n"
    output_of(live("schemas", "register", "levels", order))
    assert output_of(live("schemas", "config", "levels", "--set", "full")) == "levels: FULL\n"
    assert json.loads(output_of(live("schemas", "config", "levels", "--json"))) == {
        "subject": "levels",
        "compatibility": "FULL",
    }
    assert output_of(live("schemas", "config", "levels", "--reset")) == "levels: BACKWARD\n"
    assert "known=NONE,BACKWARD" in live("schemas", "config", "--set", "SOME").stderr
    assert live("schemas", "config", "--reset").exit_code == 2


def test_a_text_that_is_no_schema_is_reported_with_the_place(live: Live, tmp_path: Path) -> None:
    bad = written(tmp_path / "bad.avsc", ORDER.replace("long", "lang"))
    assert live("schemas", "register", "bad", bad).stderr.startswith(
        "error: invalid schema; path=/fields/0/type reason="
    )


def test_standard_input_and_references(live: Live) -> None:
    address = 'syntax = "proto3"; message Address { string city = 1; }'
    order = 'syntax = "proto3"; import "address.proto"; message Order { Address to = 1; }'
    output_of(live("schemas", "register", "address", "-", "--type", "PROTOBUF", stdin=address))
    output_of(
        live(
            "schemas", "register", "mail-value", "-", "-t", "PROTOBUF", "--ref", "address.proto=address:1", stdin=order
        )
    )
    output_of(live("produce", "mail", "--schema", "mail-value", '{"to": {"city": "Rome"}}'))
    assert output_of(live("consume", "mail", "--schema", "auto")) == '{"to": {"city": "Rome"}}\n'


def test_lines_of_json_are_written_by_a_schema_and_read_by_their_ids(live: Live, order: str) -> None:
    output_of(live("produce", "orders", "--schema", f"@{order}", "-K", "=", stdin='a={"id": 1}\nb={"id": 2}\n'))
    output_of(live("produce", "orders", "--schema", "orders-value:1", '{"id": 3}'))
    output_of(live("produce", "orders", "plain"))
    assert output_of(live("consume", "orders", "--schema", "auto")).splitlines() == [
        '{"id": 1}',
        '{"id": 2}',
        '{"id": 3}',
        "plain",
    ]
    records = [
        json.loads(line) for line in output_of(live("consume", "orders", "--schema", "auto", "--json")).splitlines()
    ]
    assert [(record["key"], record["value"]) for record in records] == [
        ("a", {"id": 1}),
        ("b", {"id": 2}),
        (None, {"id": 3}),
        (None, "plain"),
    ]
    assert output_of(live("consume", "orders", "--schema", "auto", "--group", "g")).startswith('{"id": 1}\n')


def test_lines_that_do_not_fit_are_named_and_the_others_stored(live: Live, order: str) -> None:
    result = live("produce", "mixed", "--schema", f"@{order}", '{"id": 1}', '{"id": "x"}', "nonsense", '{"id": 4}')
    assert result.exit_code == 1
    assert "record 2 failed: the value doesn't fit its schema; path=/id" in result.stderr
    assert "record 3 failed: the value doesn't fit its schema; path=/ reason=the line is not JSON" in result.stderr
    assert output_of(live("consume", "mixed", "--schema", "auto")) == '{"id": 1}\n{"id": 4}\n'


def test_what_is_asked_wrongly_is_said(live: Live, tmp_path: Path) -> None:
    file = written(tmp_path / "order.txt", ORDER)
    assert (
        "give --type, or use one of these names: .avsc AVRO, .json JSON, .proto PROTOBUF"
        in live("schemas", "register", "x", file).stderr
    )
    assert "no such file" in live("schemas", "register", "x", str(tmp_path / "not.avsc")).stderr
    assert "records contain their schema ids" in live("consume", "x", "--schema", "orders").stderr
    assert "give a subject or --id" in live("schemas", "get").stderr
    assert "unknown subject; subject=nope" in live("produce", "orders", "--schema", "nope", "{}").stderr


def test_names_and_references_are_read() -> None:
    assert parse_ref("orders-value", "") == SchemaRef(subject="orders-value")
    assert parse_ref("orders-value:2", "") == SchemaRef(subject="orders-value", version=2)
    assert parse_ref("orders-value:latest", "") == SchemaRef(subject="orders-value")
    assert parse_ref(":.context:orders-value", "") == SchemaRef(subject=":.context:orders-value")
    assert parse_reference("a.proto=b:3") == SchemaReference(name="a.proto", subject="b", version=3)


@pytest.mark.parametrize(("name", "kind"), [("a.avsc", "AVRO"), ("a.JSON", "JSON"), ("a.proto", "PROTOBUF")])
def test_a_files_name_shows_the_language(tmp_path: Path, name: str, kind: str) -> None:
    assert read_schema(written(tmp_path / name, "{}"), None, [], flag="").type == kind
