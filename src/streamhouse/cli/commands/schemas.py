"""Commands `streamhouse schemas …`: list, register, show, check and delete schemas; set compatibility levels."""

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

import typer

from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, AsJson, Yes, confirm, http_addresses
from streamhouse.cli.output import (
    Column,
    counted,
    on_terminal,
    print_error,
    print_json,
    print_line,
    print_properties,
    print_result,
    print_table,
)
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.client.types import NewSchema, Schema, SchemaRef, SchemaReference, Verdict
from streamhouse.schemas.base import SchemaType

if TYPE_CHECKING:
    from streamhouse.client.schemas import Schemas

SUFFIXES: Final[Mapping[str, SchemaType]] = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}


def chosen_schema(text: str) -> "SchemaRef | NewSchema":
    """`SUBJECT`, `SUBJECT:VERSION` or `@FILE`."""
    return read_schema(text[1:], None, [], flag="--schema") if text.startswith("@") else parse_ref(text, "--schema")


def read_schema(file: str, kind: SchemaType | None, references: list[str], *, flag: str) -> NewSchema:
    """Read a schema from a file, or with `-` from standard input; `kind` defaults to the one of the file name."""
    guessed = kind or SUFFIXES.get(Path(file).suffix.lower())
    if guessed is None:
        known = ", ".join(f"{suffix} {name}" for suffix, name in SUFFIXES.items())
        raise typer.BadParameter(
            f"unknown schema type of {file!r}; give --type, or use one of these names: {known}", param_hint=flag
        )
    text = sys.stdin.read() if file == "-" else Path(file).read_text()
    return NewSchema(text=text, type=guessed, references=tuple(map(parse_reference, references)))


def parse_ref(text: str, flag: str) -> SchemaRef:
    """`SUBJECT` or `SUBJECT:VERSION`; a subject that names a context contains colons."""
    subject, colon, version = text.rpartition(":")
    if colon and version == "latest":
        return SchemaRef(subject=subject)
    if colon and version.isascii() and version.isdigit():
        return SchemaRef(subject=subject, version=int(version))
    if not text:
        raise typer.BadParameter("must be SUBJECT or SUBJECT:VERSION", param_hint=flag)
    return SchemaRef(subject=text)


def parse_reference(text: str) -> SchemaReference:
    name, equals, target = text.partition("=")
    subject, colon, version = target.rpartition(":")
    if not (name and equals and subject and colon and version.isascii() and version.isdigit()):
        raise typer.BadParameter(f"{text!r} is not NAME=SUBJECT:VERSION", param_hint="--ref")
    return SchemaReference(name=name, subject=subject, version=int(version))


T = TypeVar("T")

DETAILS = ("{oldSchema", "{compatibility", "{validateFields")  # messages that repeat the request

app = command_group("Manage schemas and their compatibility levels.")

Kind = Annotated[
    Literal["AVRO", "JSON", "PROTOBUF"] | None,
    typer.Option("--type", "-t", help="Schema type. Default: by file name (.avsc, .json, .proto).", show_default=False),
]
References = Annotated[
    list[str] | None,
    typer.Option("--ref", metavar="NAME=SUBJECT:VERSION", help="Schema reference; may be repeated."),
]
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", show_default=False)]
Versioned = Annotated[str, typer.Argument(metavar="SUBJECT[:VERSION]", show_default=False)]
File = Annotated[str, typer.Argument(metavar="FILE", help="Schema file; - is standard input.", show_default=False)]


@app.command(
    "list",
    cls=Command,
    help=help_text(
        "List the subjects with their latest schema.",
        "streamhouse schemas list",
        "streamhouse schemas list --prefix orders- --json",
    ),
)
def list_(
    context: typer.Context,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only subjects with this prefix.")] = "",
    every: Annotated[bool, typer.Option("--all", help="Show every version, not only the latest.")] = False,
    deleted: Annotated[bool, typer.Option("--deleted", help="Include soft-deleted versions.")] = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    schemas = _send(context, agents, lambda client: client.all(prefix, latest=not every, deleted=deleted))
    if as_json:
        print_json([as_fields(schema) for schema in schemas])
    elif not schemas:
        print_line("no schemas yet; register one with: streamhouse schemas register SUBJECT FILE")
    else:
        _show_list(schemas)


def _show_list(schemas: list[Schema]) -> None:
    columns = [
        Column("subject", style="cyan", fold=True),
        Column("version", "right"),
        Column("id", "right"),
        Column("type"),
        Column("references", "right", drop=1),
    ]
    rows = [[s.subject, str(s.version), str(s.id), s.type, str(len(s.references) or "-")] for s in schemas]
    print_table(columns, rows)


@app.command(
    "register",
    cls=Command,
    help=help_text(
        "Register a schema as the next version of a subject. Registering an existing schema changes nothing. Producers "
        "use the subject TOPIC-value for the values of a topic.",
        "streamhouse schemas register orders-value order.avsc",
        "streamhouse schemas register orders-value order.proto --ref address.proto=address:1",
        "cat order.json | streamhouse schemas register orders-value - --type JSON",
    ),
)
def register(
    context: typer.Context,
    subject: Subject,
    file: File,
    kind: Kind = None,
    reference: References = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Normalize the schema before comparing it.")] = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    schema = read_schema(file, kind, reference or [], flag="FILE")
    registered = _send(context, agents, lambda schemas: schemas.register(subject, schema, normalize=normalize))
    print_result(as_fields(registered), f"{subject} version {registered.version}, id {registered.id}", as_json)


@app.command(
    "get",
    cls=Command,
    help=help_text(
        "Show a schema by subject (latest or a version) or by id. Prints only the schema text into a pipe.",
        "streamhouse schemas get orders-value",
        "streamhouse schemas get orders-value:2 > order.avsc",
        "streamhouse schemas get --id 17 --json",
    ),
)
def get(
    context: typer.Context,
    subject: Annotated[str | None, typer.Argument(metavar="SUBJECT[:VERSION]", show_default=False)] = None,
    schema_id: Annotated[int | None, typer.Option("--id", metavar="N", min=1, help="Schema id.")] = None,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    if (subject is None) == (schema_id is None):
        raise typer.BadParameter("give a subject or --id", param_hint="SUBJECT")
    schema: Schema | NewSchema
    if schema_id is not None:
        schema = _send(context, agents, lambda schemas: schemas.by_id(schema_id))
    else:
        ref = parse_ref(subject or "", "SUBJECT")
        schema = _send(context, agents, lambda schemas: schemas.get(ref.subject, ref.version))
    if as_json:
        print_json(as_fields(schema))
    else:
        _show(schema)


def _show(schema: "Schema | NewSchema") -> None:
    if on_terminal():
        facts = [
            ("type", schema.type),
            *(("refers to", f"{r.name} = {r.subject}:{r.version}") for r in schema.references),
        ]
        if isinstance(schema, Schema):
            facts = [("subject", schema.subject), ("version", str(schema.version)), ("id", str(schema.id)), *facts]
        print_properties(facts)
        print_line()
    typer.echo(_pretty(schema.text) if on_terminal() else schema.text)


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


@app.command(
    "check",
    cls=Command,
    help=help_text(
        "Check whether a schema is compatible with a subject. If not, show why and exit with code 1.",
        "streamhouse schemas check orders-value order.avsc",
        "streamhouse schemas check orders-value:2 order.avsc --json",
    ),
)
def check(
    context: typer.Context,
    subject: Versioned,
    file: File,
    kind: Kind = None,
    reference: References = None,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    ref = parse_ref(subject, "SUBJECT")
    schema = read_schema(file, kind, reference or [], flag="FILE")
    verdict = _send(context, agents, lambda schemas: schemas.check(ref.subject, schema, version=ref.version))
    if as_json:
        print_json({"compatible": verdict.compatible, "messages": list(verdict.messages)})
    else:
        _show_compatibility(subject, verdict)
    if not verdict.compatible:
        raise typer.Exit(1)


def _show_compatibility(subject: str, verdict: Verdict) -> None:
    if verdict.compatible:
        print_line(f"compatible: it may follow in {subject}", color="green")
        return
    from streamhouse.client.schemas import explain_error

    shown = [explain_error(message) for message in verdict.messages if not message.startswith(DETAILS)]
    for message in shown:
        print_line(f"  {message}")
    print_error(f"incompatible with {subject}: change the schema, or the level with: streamhouse schemas config")


@app.command(
    "delete",
    cls=Command,
    help=help_text(
        "Delete a version of a subject, or all versions. Records with its schema id stay readable. --permanent deletes "
        "soft-deleted versions permanently. Asks for confirmation unless --yes is given.",
        "streamhouse schemas delete orders-value:2",
        "streamhouse schemas delete orders-value --permanent --yes",
    ),
)
def delete(
    context: typer.Context,
    subject: Versioned,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="Delete permanently; the id can no longer be looked up.")
    ] = False,
    yes: Yes = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    ref = parse_ref(subject, "SUBJECT")
    confirm(f"Delete {subject}{' permanently' if permanent else ''}?", yes)
    versions = _send(context, agents, lambda schemas: schemas.delete(ref.subject, ref.version, permanent=permanent))
    print_result(
        {"subject": ref.subject, "deleted": versions},
        f"deleted {counted(len(versions), 'version')} of {ref.subject}",
        as_json,
    )


@app.command(
    "config",
    cls=Command,
    help=help_text(
        "Show or set the compatibility level of a subject, or the global one: BACKWARD, FORWARD, FULL (each also "
        "_TRANSITIVE) or NONE.",
        "streamhouse schemas config",
        "streamhouse schemas config orders-value --set FULL",
        "streamhouse schemas config orders-value --reset",
    ),
)
def config(
    context: typer.Context,
    subject: Annotated[str | None, typer.Argument(metavar="SUBJECT", show_default=False)] = None,
    level: Annotated[str | None, typer.Option("--set", metavar="LEVEL", help="Set the compatibility level.")] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Remove the level of the subject; the global one applies.")
    ] = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    if reset and (level is not None or subject is None):
        raise typer.BadParameter("--reset needs a subject and excludes --set", param_hint="--reset")
    current = _send(context, agents, lambda schemas: _configured(schemas, subject, level, reset=reset))
    if as_json:
        print_json({"subject": subject, "compatibility": current})
    else:
        print_line(f"{subject or 'all subjects'}: {current}")


async def _configured(schemas: "Schemas", subject: str | None, level: str | None, *, reset: bool) -> str:
    if reset and subject is not None:
        await schemas.reset_compatibility(subject)
    return await (schemas.compatibility(subject) if level is None else schemas.set_compatibility(level, subject))


def as_fields(schema: "Schema | NewSchema") -> dict[str, object]:
    references = [{"name": r.name, "subject": r.subject, "version": r.version} for r in schema.references]
    fields: dict[str, object] = {"type": schema.type, "schema": schema.text, "references": references}
    if not isinstance(schema, Schema):
        return fields
    return {"subject": schema.subject, "version": schema.version, "id": schema.id, **fields}


def _send(context: typer.Context, agents: str | None, request: "Callable[[Schemas], Awaitable[T]]") -> T:
    return run(_send_async(dependencies_of(context), http_addresses(agents), request))


async def _send_async(deps: Dependencies, address: str, request: "Callable[[Schemas], Awaitable[T]]") -> T:
    async with deps.http(address) as http:
        return await request(deps.schemas(http))
