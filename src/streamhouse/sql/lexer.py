"""Lexer of SQL texts: tokens with line and column, and `TokenCursor`, which walks through one statement.

Spark's lexical rules apply: comments, quoted names, string escapes. Any other character is
a symbol token of its own, so that a statement for Spark can be cut out of a text without being changed.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from streamhouse.errors import StatementError


class TokenKind(StrEnum):
    WORD = "word"
    NAME = "name"  # in backticks
    TEXT = "text"  # in quotes
    NUMBER = "number"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """`value` is a name without its backticks, a string without its quotes, anything else as it stands."""

    kind: TokenKind
    value: str
    start: int
    stop: int

    def is_keyword(self, *words: str) -> bool:
        return self.kind is TokenKind.WORD and self.value.upper() in words

    def is_sign(self, sign: str) -> bool:
        return self.kind is TokenKind.SIGN and self.value == sign


_SPACE: Final = re.compile(r"(?:\s+|--(?:\\\n|[^\r\n])*+)+")
"""A comment ends with its line, at a carriage return too, and continues behind a backslash, as Spark's does."""
_WORD: Final = re.compile(r"[^\W\d]\w*")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_NAME: Final = re.compile(r"`((?:[^`]++|``)*+)`")
_STRING: Final = {
    "'": re.compile(r"'((?:[^'\\]++|\\.|'')*+)'", re.DOTALL),
    '"': re.compile(r'"((?:[^"\\]++|\\.|"")*+)"', re.DOTALL),
}
_RAW: Final = re.compile(r"""[rR](?:'([^']*)'|"([^"]*)")""")
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")
_ESCAPE: Final = re.compile(r"\\(.)|''|\"\"", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


def position(text: str, index: int) -> tuple[int, int]:
    """The line and the column of an index into a text, both from 1."""
    before = text[: max(0, index)]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def error_at(text: str, index: int, what: str, hint: str = "") -> StatementError:
    line, column = position(text, index)
    return StatementError(line, column, what, hint)


def tokenize(text: str) -> Iterator[Token]:
    """Every token, comments left out, and END at last; raises `StatementError` for what is never closed."""
    at = 0
    while (at := _without_space(text, at)) < len(text):
        token = _token(text, at)
        yield token
        at = token.stop
    yield Token(kind=TokenKind.END, value="", start=len(text), stop=len(text))


def without_layout(text: str) -> str:
    """A text without its comments and spaces: two that are equal then mean the same. One that is no SQL stays."""
    parts: list[str] = []
    end = -1
    try:
        for token in tokenize(text):
            # `1e3` is a number, `1 e3` a number with a name; `X'1F'` are bytes.
            is_joined = token.start == end and token.kind in (TokenKind.WORD, TokenKind.TEXT)
            parts.append(f"{'' if is_joined else ' '}{token.kind} {token.value!r}")
            end = token.stop
    except StatementError:
        return text
    return "".join(parts)


def _without_space(text: str, at: int) -> int:
    """Behind spaces and comments; those in brackets may hold others."""
    while True:
        if space := _SPACE.match(text, at):
            at = space.end()
        if not text.startswith("/*", at):
            return at
        at = _after_comment(text, at)


def _after_comment(text: str, start: int) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    raise error_at(text, start, "a comment is never closed", "end it with */")


def _token(text: str, at: int) -> Token:
    first = text[at]
    if first == "`":
        quoted = _closed(_NAME.match(text, at), text, at, "a name in backticks is never closed")
        return Token(kind=TokenKind.NAME, value=quoted.group(1).replace("``", "`"), start=at, stop=quoted.end())
    if first in _STRING:
        quoted = _closed(_STRING[first].match(text, at), text, at, "a string is never closed")
        return Token(kind=TokenKind.TEXT, value=_unescaped(quoted.group(1), first), start=at, stop=quoted.end())
    if raw := _RAW.match(text, at):
        return Token(kind=TokenKind.TEXT, value=raw.group(1) or raw.group(2) or "", start=at, stop=raw.end())
    for kind, pattern in ((TokenKind.WORD, _WORD), (TokenKind.NUMBER, _NUMBER)):
        if match := pattern.match(text, at):
            return Token(kind=kind, value=match.group(), start=at, stop=match.end())
    return Token(kind=TokenKind.SIGN, value=first, start=at, stop=at + 1)


def _closed(match: re.Match[str] | None, text: str, at: int, what: str) -> re.Match[str]:
    if match is None:
        raise error_at(text, at, what, f"end it with {text[at]}")
    return match


def _unescaped(body: str, quote: str) -> str:
    def meant(match: re.Match[str]) -> str:
        escaped = match.group(1)
        if escaped is not None:
            return _ESCAPED.get(escaped, escaped)
        return quote if match.group() == 2 * quote else match.group()

    return _ESCAPE.sub(meant, body)


class TokenCursor:
    """For parsers to build upon; `_at` is the token that comes next."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self._text, self._tokens, self._at = text, tokens, 0
        self._span = (tokens[0].start, tokens[-1].stop)
        self._whole = text[slice(*self._span)]

    def _next(self) -> Token:
        if self._at < len(self._tokens):
            return self._tokens[self._at]
        return Token(kind=TokenKind.END, value="", start=self._span[1], stop=self._span[1])

    def _take(self, *words: str) -> bool:
        """Whether these words come next; they are passed then."""
        following = self._tokens[self._at : self._at + len(words)]
        if len(following) < len(words) or not all(
            token.is_keyword(word) for token, word in zip(following, words, strict=True)
        ):
            return False
        self._at += len(words)
        return True

    def _need(self, word: str, hint: str) -> None:
        if not self._take(word):
            raise self._unexpected(word, hint)

    def _sign(self, sign: str) -> None:
        if not self._next().is_sign(sign):
            raise self._unexpected(sign)
        self._at += 1

    def _comma(self) -> bool:
        """Whether a list continues; its closing bracket is passed otherwise."""
        if self._next().is_sign(","):
            self._at += 1
            return True
        if not self._next().is_sign(")"):
            raise self._unexpected("a comma or )")
        self._at += 1
        return False

    def _end(self) -> None:
        if self._at < len(self._tokens):
            raise self._unexpected("the end of the statement", "statements end with ;")

    def _unexpected(self, expected: str, hint: str = "") -> StatementError:
        token = self._next()
        actual = self._text[token.start : token.stop] or "the end"
        return self._error(token, f"expected {expected}, found {actual}", hint)

    def _error(self, token: Token, what: str, hint: str = "") -> StatementError:
        return error_at(self._text, token.start, what, hint)
