"""Applying: files become what agents keep: read, validated, then put there, one after the other.

Data path   `pipelines apply` -> files -> **applying** -> a SQL worker (validation) -> agents
Owns        which files, in which order; problems with file, line and column; what became of each definition
Leaves      requests to `definitions`, judging to the worker, screens to the command line

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
"""What a SQL worker says about a text of statements, and by name about pipelines in Python."""


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
    """What became of one definition: created, changed, unchanged, restarted, deleted, absent, refused."""

    what: str
    name: str
    outcome: str
    why: str = ""
    path: str = ""
    line: int = 0


def find_files(given: Iterable[Path]) -> list[Path]:
    """Files as they are named; of folders all SQL and Python, by name: tables in `1-tables.sql` come first."""
    found: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())
            if not inside:
                raise Rejected(f"no SQL or Python files here; folder={path}")
            found += inside
        elif path.suffix not in SUFFIXES:
            raise Rejected(f"neither .sql nor .py; file={path}")
        else:
            found.append(path)
    return found


def read_files(paths: Iterable[Path]) -> tuple[list[DefinitionFile], list[FileDiagnostic]]:
    """What the files ask for, and what of it can't be understood."""
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
    """The files with what Spark knows of their statements, and what it finds wrong.

    Statements of all SQL files are judged as one text, so that each knows what those before it create. Functions in
    Python know them too.
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


def _is_as_written(kept: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    return all(kept.get(name) == body[name] for name in ("kind", "text", "options", "target"))


class DefinitionApplier:
    """Puts changes to agents; `begin`: where pipelines start that are new, or can't keep their place."""

    def __init__(self, http: Http, *, begin: str | None = None) -> None:
        self._http, self._begin = http, begin
        self._changed: set[str] = set()
        self._begun: set[str] = set()

    async def apply(self, change: DefinitionChange) -> Outcome:
        """Never raises for what agents refuse."""
        if change.body is None:
            answer = await self._http.ask("DELETE", change.path)
            if answer.status == 404 and change.is_optional:
                return Outcome(what=change.what, name=change.name, outcome="absent")
            return self._outcome(change, answer, "deleted")
        if change.what == "table":
            return await self._table(change)
        return await self._pipeline(change, change.body)

    async def settle(self) -> list[Outcome]:
        """Pipelines read the definition of a lake table that they write when they start: those that run start again."""
        answer = await self._http.ask("GET", "/v1/pipelines") if self._changed else None
        kept = msgspec.json.decode(answer.content)["pipelines"] if answer and answer.status == OK else []
        found: list[Outcome] = []
        for each in kept:
            name, target = each["name"], each.get("target")
            if target in self._changed and name not in self._begun and each.get("wish") == DesiredState.RUN:
                change = DefinitionChange(what="pipeline", name=name, body={}, line=0)
                again = await self._http.ask("POST", f"{change.path}/restart", body={"from": None})
                found.append(self._outcome(change, again, "restarted"))
        return found

    async def _table(self, change: DefinitionChange) -> Outcome:
        found = await self._http.ask("GET", change.path)
        was = msgspec.json.decode(found.content) if found.status == 200 else None
        text = None if was is None else was.get("text")
        if text is not None and (change.is_optional or text == (change.body or {}).get("text")):
            return Outcome(what="table", name=change.name, outcome="unchanged")
        answer = await self._http.ask("PUT", change.path, body=change.body)
        outcome = self._outcome(change, answer, "created" if text is None else "changed")
        if outcome.outcome == "changed" and (change.body or {}).get("connector") in LAKE:
            self._changed.add(change.name)
        return outcome

    async def _pipeline(self, change: DefinitionChange, body: Mapping[str, Any]) -> Outcome:
        found = await self._http.ask("GET", change.path)
        is_there = found.status == 200
        if is_there and change.is_inferred and _is_as_written(msgspec.json.decode(found.content), body):
            body = {**body, "columns": None, "shape": None}  # it keeps what was inferred when it was created
        begins = {"starting": None if is_there else self._begin, "fresh": False}
        answer = await self._http.ask("PUT", change.path, body={**body, **begins})
        if answer.status == CONFLICT and self._begin is not None:
            fresh = {"starting": self._begin, "fresh": True}
            answer = await self._http.ask("PUT", change.path, body={**body, **fresh})
        outcome = self._outcome(change, answer, "changed")
        if outcome.outcome in ("created", "changed"):
            self._begun.add(change.name)
        return outcome

    def _outcome(self, change: DefinitionChange, answer: HttpResponse, usual: str) -> Outcome:
        if answer.status >= 500:
            raise Unavailable(error_detail(answer))
        if answer.status >= 400:
            return Outcome(
                what=change.what, name=change.name, outcome="refused", why=error_detail(answer), line=change.line
            )
        told = msgspec.json.decode(answer.content) if answer.content else {}
        outcome = told.get("outcome") if isinstance(told, dict) else None
        return Outcome(what=change.what, name=change.name, outcome=outcome or usual, line=change.line)
