"""Rows of the schema registry: conversion of model values to rows and back.

Data path   between the engines and `procedures.schemas`
Owns        both directions
Leaves      column names to `sql/`
"""

import json
from collections.abc import Iterable

from streamhouse.model.schema import (
    Mode,
    NewVersion,
    Reference,
    RegisteredSchema,
    Rules,
    StoredSchema,
    Subject,
    SubjectVersion,
    VersionKey,
)
from streamhouse.stores.metadata.rows import Params, Row


def subject_params(subject: Subject) -> Params:
    return {"context": subject.context, "subject": subject.name}


def key_params(key: VersionKey) -> Params:
    return {**subject_params(key.subject), "version": key.version}


def key_list(keys: Iterable[VersionKey]) -> str:
    """A JSON array for `find_schema_versions`, each version once."""
    return json.dumps([[*subject, version] for subject, version in dict.fromkeys(keys)])


def scope_list(scopes: Iterable[Subject]) -> str:
    """A JSON array for `find_schema_rules`, each scope once."""
    return json.dumps([list(scope) for scope in dict.fromkeys(scopes)])


def schema_params(new: NewVersion, schema_id: int) -> Params:
    return {
        "context": new.subject.context,
        "schema_id": schema_id,
        "guid": new.guid,
        "type": new.type,
        "text": new.text,
        "refs": json.dumps([list(reference) for reference in new.references]),
        "metadata": new.metadata,
        "rule_set": new.rule_set,
    }


def subject_of(row: Row) -> Subject:
    return Subject(row["context"], row["subject"])


def schema_of(row: Row) -> StoredSchema:
    return StoredSchema(
        context=row["context"],
        schema_id=row["schema_id"],
        guid=row["guid"],
        type=row["type"],
        text=row["text"],
        references=tuple(Reference(*each) for each in json.loads(row["refs"])),
        metadata=row["metadata"],
        rule_set=row["rule_set"],
    )


def version_of(row: Row) -> SubjectVersion:
    return SubjectVersion(
        subject=subject_of(row),
        version=row["version"],
        schema_id=row["schema_id"],
        guid=row["guid"],
        deleted=bool(row["deleted"]),
    )


def registered_of(row: Row) -> RegisteredSchema:
    return RegisteredSchema(
        subject=subject_of(row),
        version=row["version"],
        deleted=bool(row["deleted"]),
        created_at_ms=row["created_at_ms"],
        schema=schema_of(row),
    )


def rules_of(row: Row) -> Rules:
    return Rules(config=row["config"], mode=None if row["mode"] is None else Mode(row["mode"]))
