"""Completion in the SQL shell: tables, columns, functions and keywords that fit the position of the cursor."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from streamhouse.model.identifiers import quote_if_needed

_KEYWORDS: Final = """\
ALL AND AS ASC BETWEEN BY CASE CAST CREATE CROSS DESC DESCRIBE DISTINCT DROP ELSE END EXCEPT EXISTS EXPLAIN
FALSE FROM FULL GROUP HAVING IF ILIKE IN INNER INSERT INTERSECT INTERVAL INTO IS JOIN KEY LATERAL LEFT LIKE LIMIT
MATERIALIZED NOT NULL OFFSET ON OR ORDER OUTER OVER PARTITION PIPELINE PIPELINES PRIMARY REPLACE RIGHT SELECT SHOW
STREAM TABLE TABLES THEN TRUE UNION USING VALUES VIEW VIEWS WATERMARK WHEN WHERE WINDOW WITH"""
KEYWORDS: Final = tuple(_KEYWORDS.split())
COMMANDS: Final[Mapping[str, str]] = {
    "\\d": "tables, or the columns of one: \\d orders",
    "\\e": "edit the last statement in $EDITOR",
    "\\i": "run a file: \\i queries.sql",
    "\\q": "leave (Ctrl-D too)",
    "\\timing": "turn the display of query times on or off",
    "\\watch": "repeat the last query: \\watch 2",
    "\\x": "rows below each other, or as a table",
    "\\?": "this help",
}
METADATA_COLUMNS: Final = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
_WORD: Final = re.compile(r"[\\\w]*$")
_TABLE_POSITION: Final = re.compile(r"\b(FROM|JOIN|INTO|TABLE|VIEW|DESCRIBE|STREAM\s*\(|STREAM)\s*$", re.IGNORECASE)
_MENTIONED: Final = re.compile(r"`([^`]+)`|([\w-]+)")
MAX_OFFERED: Final = 200


@dataclass(slots=True)
class CompletionNames:
    """Known names; the shell refreshes them from time to time."""

    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    functions: tuple[str, ...] = ()

    def update(self, response: Mapping[str, Any]) -> None:
        self.tables = {each["name"]: tuple(each.get("columns") or ()) for each in response.get("tables") or ()}
        self.functions = tuple(response.get("functions") or ())


def completions(text: str, words: CompletionNames) -> Iterator[tuple[str, str]]:
    """Yield replacements of the last word of the text, each with its kind."""
    typed = _WORD.search(text)
    prefix = typed[0] if typed else ""
    before = text[: len(text) - len(prefix)]
    if prefix.startswith("\\") and not before.strip():
        yield from ((name, about) for name, about in COMMANDS.items() if name.startswith(prefix))
        return
    if _TABLE_POSITION.search(before) or before.lstrip().startswith("\\d"):
        yield from _matching(prefix, words.tables, "table")
        return
    if not prefix:
        return
    yield from _matching(prefix, _columns(text, words), "column")
    yield from _matching(prefix, words.functions, "function")
    yield from (
        (word if prefix.isupper() else _match_case(word, prefix), "") for word in KEYWORDS if _starts_with(word, prefix)
    )
    yield from _matching(prefix, words.tables, "table")


def _columns(text: str, words: CompletionNames) -> Sequence[str]:
    """Columns of the tables that the text names."""
    mentioned = {(match[1] or match[2]).lower() for match in _MENTIONED.finditer(text)}
    tables = [columns for name, columns in words.tables.items() if name.lower() in mentioned]
    return tuple(
        dict.fromkeys([name for columns in tables for name in columns] + (list(METADATA_COLUMNS) if tables else []))
    )


def _matching(prefix: str, names: Iterable[str], about: str) -> Iterator[tuple[str, str]]:
    return ((quote_if_needed(name), about) for name in names if _starts_with(name, prefix))


def _starts_with(name: str, prefix: str) -> bool:
    return name.lower().startswith(prefix.lower())


def _match_case(word: str, prefix: str) -> str:
    return word.lower() if prefix[:1].islower() else word


class NameCompleter(Completer):
    """For prompt_toolkit."""

    def __init__(self, words: CompletionNames) -> None:
        self._words = words

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        typed = _WORD.search(text)
        length = len(typed[0]) if typed else 0
        for number, (word, about) in enumerate(completions(text, self._words)):
            if number >= MAX_OFFERED:
                return
            yield Completion(word, start_position=-length, display_meta=about)
