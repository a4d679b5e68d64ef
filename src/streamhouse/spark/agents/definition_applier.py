"""Applier of definitions: reads files, has them validated, and stores them with agents, one after the other.

Data path   `pipelines apply` -> files -> **definition_applier** -> a SQL worker (validation) -> agents
Owns        which files, in which order; diagnostics with file, line and column; the outcome of each definition
Leaves      request bodies to `sql.definitions`, validation to the worker, output to the command line

All of it is read and validated before anything is changed.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from streamhouse.client.http import Http, HttpResponse
from streamhouse.errors import Rejected, StatementError, Unavailable
from streamhouse.model.pipeline import DesiredState, Kind
from streamhouse.model.table import LAKE
from streamhouse.spark.agents.client import error_detail
from streamhouse.sql.definitions import DefinitionChange, changes_of

SUFFIXES: Final = (".sql", ".py")
OK: Final = 200
CONFLICT: Final = 409

Validated = tuple[Sequence[Mapping[str, Any]], Mapping[str, Sequence[Mapping[str, Any]]]]
Validate = Callable[[str, Sequence[Mapping[str, Any]]], Awaitable[Validated]]
"""A SQL worker's diagnostics of a text of statements, and by name of pipelines in Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionFile:
    path: Path
    text: str
    changes: tuple[DefinitionChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiagnostic:
    """Something wrong in a file; `line` and `column` count from 1."""

    path: Path
    line: int
    column: int
    text: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.text}" + (f" ({self.hint})" if self.hint else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one definition: created, changed, unchanged, restarted, deleted, absent, refused."""

    what: str
    name: str
    outcome: str
    why: str = ""
    path: str = ""
    line: int = 0


def find_files(given: Iterable[Path]) -> list[Path]:
    """Files as they are named; of folders all SQL and Python, by name: tables in `1-tables.sql` come first."""
    files: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())
            if not inside:
                raise Rejected(f"no SQL or Python files here; folder={path}")
            files += inside
        elif path.suffix not in SUFFIXES:
            raise Rejected(f"neither .sql nor .py; file={path}")
        else:
            files.append(path)
    return files


def read_files(paths: Iterable[Path]) -> tuple[list[DefinitionFile], list[FileDiagnostic]]:
    """The changes that the files declare, and diagnostics of those that can't be parsed."""
    files: list[DefinitionFile] = []
    problems: list[FileDiagnostic] = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        try:
            files.append(DefinitionFile(path=path, text=text, changes=changes_of(path, text)))
        except StatementError as error:
            problems.append(
                FileDiagnostic(path=path, line=error.line, column=error.column, text=error.text, hint=error.hint)
            )
    return files, problems


async def validated(
    files: Sequence[DefinitionFile], validate: Validate
) -> tuple[list[DefinitionFile], list[FileDiagnostic]]:
    """The files with what Spark inferred of their statements, and diagnostics.

    Statements of all SQL files are validated as one text, so that each sees what those before it create. Functions in
    Python see them too.
    """
    queries = [file for file in files if file.path.suffix == ".sql" and file.changes]
    python = {change.name: (file, change) for file in files for change in file.changes if _is_python(change)}
    if not queries and not python:
        return list(files), []
    text, starts = "", []
    for file in queries:
        starts.append(text.count("\n"))
        text += file.text.rstrip() + ("" if file.text.rstrip().endswith(";") else "\n;") + "\n"
    problems: list[FileDiagnostic] = []
    known: dict[str, Mapping[str, Any]] = {}
    statements, in_python = await validate(text, [_definition_body(change) for _, change in python.values()])
    for name, wrong in in_python.items():
        problems += [FileDiagnostic(path=python[name][0].path, **each) for each in wrong]
    for checked in statements:
        if checked.get("name"):
            known[checked["name"]] = checked
        for each in checked.get("problems") or ():
            at = max(number for number, start in enumerate(starts) if start < max(1, each["line"]))
            problems.append(
                FileDiagnostic(
                    path=queries[at].path,
                    line=each["line"] - starts[at],
                    column=each["column"],
                    text=each["text"],
                    hint=each.get("hint") or "",
                )
            )
    return [_with_shapes(file, known) for file in files], problems


def _is_python(change: DefinitionChange) -> bool:
    return change.body is not None and change.body.get("kind") == Kind.PYTHON


def _definition_body(change: DefinitionChange) -> dict[str, Any]:
    assert change.body is not None
    return {
        "name": change.name,
        "text": change.body["text"],
        "line": max(1, change.line),
        "options": dict(change.body["options"]),
    }


def _with_shapes(file: DefinitionFile, known: Mapping[str, Mapping[str, Any]]) -> DefinitionFile:
    return replace(file, changes=tuple(_with_shape(change, known.get(change.name)) for change in file.changes))


def _with_shape(change: DefinitionChange, checked: Mapping[str, Any] | None) -> DefinitionChange:
    if checked is None or change.body is None or "kind" not in change.body or change.body["kind"] == "python":
        return change
    return replace(
        change,
        body={
            **change.body,
            "columns": checked.get("columns"),
            "shape": checked.get("shape"),
            "key": change.body["key"] or checked.get("key") or [],
        },
        is_inferred=bool(checked.get("notes")),
    )


def _is_as_written(stored: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    return all(stored.get(name) == body[name] for name in ("kind", "text", "options", "target"))


class DefinitionApplier:
    """Sends changes to agents; `begin` is the start of pipelines that are new, or can't keep their checkpoint."""

    def __init__(self, http: Http, *, begin: str | None = None) -> None:
        self._http, self._begin = http, begin
        self._changed: set[str] = set()
        self._begun: set[str] = set()

    async def apply(self, change: DefinitionChange) -> Outcome:
        """Apply one change; a rejection by agents is an outcome, not an exception."""
        if change.body is None:
            response = await self._http.send("DELETE", change.path)
            if response.status == 404 and change.is_optional:
                return Outcome(what=change.what, name=change.name, outcome="absent")
            return self._outcome(change, response, "deleted")
        if change.what == "table":
            return await self._table(change)
        return await self._pipeline(change, change.body)

    async def settle(self) -> list[Outcome]:
        """Restart the running pipelines that write a changed lake table: they read its definition when they start."""
        response = await self._http.send("GET", "/v1/pipelines") if self._changed else None
        stored = msgspec.json.decode(response.content)["pipelines"] if response and response.status == OK else []
        outcomes: list[Outcome] = []
        for each in stored:
            name, target = each["name"], each.get("target")
            if target in self._changed and name not in self._begun and each.get("wish") == DesiredState.RUN:
                change = DefinitionChange(what="pipeline", name=name, body={}, line=0)
                restarted = await self._http.send("POST", f"{change.path}/restart", body={"from": None})
                outcomes.append(self._outcome(change, restarted, "restarted"))
        return outcomes

    async def _table(self, change: DefinitionChange) -> Outcome:
        current = await self._http.send("GET", change.path)
        stored = msgspec.json.decode(current.content) if current.status == 200 else None
        text = None if stored is None else stored.get("text")
        if text is not None and (change.is_optional or text == (change.body or {}).get("text")):
            return Outcome(what="table", name=change.name, outcome="unchanged")
        response = await self._http.send("PUT", change.path, body=change.body)
        outcome = self._outcome(change, response, "created" if text is None else "changed")
        if outcome.outcome == "changed" and (change.body or {}).get("connector") in LAKE:
            self._changed.add(change.name)
        return outcome

    async def _pipeline(self, change: DefinitionChange, body: Mapping[str, Any]) -> Outcome:
        current = await self._http.send("GET", change.path)
        exists = current.status == 200
        if exists and change.is_inferred and _is_as_written(msgspec.json.decode(current.content), body):
            body = {**body, "columns": None, "shape": None}  # it keeps what was inferred when it was created
        begins = {"starting": None if exists else self._begin, "fresh": False}
        response = await self._http.send("PUT", change.path, body={**body, **begins})
        if response.status == CONFLICT and self._begin is not None:
            fresh = {"starting": self._begin, "fresh": True}
            response = await self._http.send("PUT", change.path, body={**body, **fresh})
        outcome = self._outcome(change, response, "changed")
        if outcome.outcome in ("created", "changed"):
            self._begun.add(change.name)
        return outcome

    def _outcome(self, change: DefinitionChange, response: HttpResponse, usual: str) -> Outcome:
        if response.status >= 500:
            raise Unavailable(error_detail(response))
        if response.status >= 400:
            return Outcome(
                what=change.what, name=change.name, outcome="refused", why=error_detail(response), line=change.line
            )
        decoded = msgspec.json.decode(response.content) if response.content else {}
        outcome = decoded.get("outcome") if isinstance(decoded, dict) else None
        return Outcome(what=change.what, name=change.name, outcome=outcome or usual, line=change.line)
