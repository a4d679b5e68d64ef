"""Schema files: what people write on a command line to name a schema, or its text.

Owns        `@FILE`, `-`, `SUBJECT:VERSION`, `NAME=SUBJECT:VERSION`; the language that a file's name tells
Leaves      registering and looking up to `client.schemas`
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import typer

from streamhouse.client.types import NewSchema, SchemaRef, SchemaReference
from streamhouse.schemas.base import SchemaType

SUFFIXES: Final[Mapping[str, SchemaType]] = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}


def chosen_schema(text: str) -> "SchemaRef | NewSchema":
    """`SUBJECT`, `SUBJECT:VERSION` or `@FILE`."""
    return read_schema(text[1:], None, [], flag="--schema") if text.startswith("@") else parse_ref(text, "--schema")


def read_schema(file: str, kind: SchemaType | None, references: list[str], *, flag: str) -> NewSchema:
    """A file's text, or with `-` standard input's; the language is told, or guessed from the name."""
    guessed = kind or SUFFIXES.get(Path(file).suffix.lower())
    if guessed is None:
        known = ", ".join(f"{suffix} {name}" for suffix, name in SUFFIXES.items())
        raise typer.BadParameter(
            f"can't tell the language of {file!r}; say --type, or name it: {known}", param_hint=flag
        )
    text = sys.stdin.read() if file == "-" else Path(file).read_text()
    return NewSchema(text=text, type=guessed, references=tuple(map(parse_reference, references)))


def parse_ref(text: str, flag: str) -> SchemaRef:
    """`SUBJECT` or `SUBJECT:VERSION`; a subject may have colons of its own, where it names a context."""
    subject, colon, version = text.rpartition(":")
    if colon and version == "latest":
        return SchemaRef(subject=subject)
    if colon and version.isascii() and version.isdigit():
        return SchemaRef(subject=subject, version=int(version))
    if not text:
        raise typer.BadParameter("must be SUBJECT or SUBJECT:VERSION", param_hint=flag)
    return SchemaRef(subject=text)


def parse_reference(text: str) -> SchemaReference:
    name, equals, place = text.partition("=")
    subject, colon, version = place.rpartition(":")
    if not (name and equals and subject and colon and version.isascii() and version.isdigit()):
        raise typer.BadParameter(f"{text!r} is not NAME=SUBJECT:VERSION", param_hint="--ref")
    return SchemaReference(name=name, subject=subject, version=int(version))
