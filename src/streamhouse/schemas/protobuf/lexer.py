"""Lexer: the tokens of a .proto text, and a cursor that reports what it expected at which line and column.

Invariant: every step consumes at least one character, so any text ends.
"""

import re
from enum import Enum
from typing import Final, NamedTuple, NoReturn

from streamhouse.errors import InvalidSchema

MAX_INT: Final = 2**64 - 1
MAX_TOKENS: Final = 300_000
"""Words of one text. What people write has far fewer; a text of nothing but semicolons would have a million."""


class Kind(Enum):
    """The kind of a token."""

    NAME = "a name"
    INT = "an integer"
    FLOAT = "a number"
    STRING = "a string"
    SYMBOL = "a symbol"
    END = "the end of the text"


class Token(NamedTuple):
    """One word; `start` is where it begins in the text."""

    kind: Kind
    text: str
    start: int


_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t\r\n\f\v]+|//[^\n]*|/\*(?:[^*]+|\*(?!/))*+\*/)
      | (?P<NAME>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<FLOAT>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
      | (?P<INT>0[xX][0-9a-fA-F]+|[0-9]+)
      | (?P<STRING>"(?:[^"\\\n]|\\[^\n])*+"|'(?:[^'\\\n]|\\[^\n])*+')
      | (?P<SYMBOL>[;{}\[\]()<>=,.:+-]|/(?!\*))""",
    re.VERBOSE,
)
_KINDS: Final[dict[str | None, Kind]] = {kind.name: kind for kind in Kind}
_ESCAPE: Final = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([abfnrtv\\'\"?])|)"
)
_LETTERS: Final = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
    b"\\": b"\\", b"'": b"'", b'"': b'"', b"?": b"?",
}  # fmt: skip


class Cursor:
    """The tokens of one text, one after another."""

    __slots__ = ("_next", "_source", "_text", "_tokens")

    def __init__(self, text: str, *, source: str = "") -> None:
        self._text, self._source = text, source
        self._next = 0
        self._tokens = self._split(text)

    def _split(self, text: str) -> list[Token]:
        tokens: list[Token] = []
        # A byte-order mark is what some editors leave; protoc skips it as well.
        at = 1 if text.startswith("\ufeff") else 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                self.fail(f"unexpected {_unreadable(text, at)}", at=at)
            name = match.lastgroup
            if name != "blank":
                tokens.append(Token(_KINDS[name], match[0], at))
            if name in ("INT", "FLOAT") and text[match.end() : match.end() + 1].isidentifier():
                self.fail("a number must be followed by a space or a symbol", at=match.end())
            at = match.end()
            if len(tokens) > MAX_TOKENS:
                self.fail(f"too many words; limit={MAX_TOKENS}", at=at)
        tokens.append(Token(Kind.END, "", len(text)))
        return tokens

    @property
    def token(self) -> Token:
        """The token that comes next; it stays."""
        return self._tokens[self._next]

    def location(self, at: int) -> str:
        """Where in the text that is, as people count: from one."""
        line = self._text.count("\n", 0, at) + 1
        column = at - self._text.rfind("\n", 0, at)
        return f"{self._source}{line}:{column}"

    def fail(self, why: str, *, at: int | None = None) -> NoReturn:
        """Refuse the text here."""
        raise InvalidSchema(why, path=self.location(self.token.start if at is None else at))

    def expected(self, what: str) -> NoReturn:
        """Refuse the next token, and say what should stand in its place."""
        token = self.token
        got = "the end of the text" if token.kind is Kind.END else repr(token.text[:40])
        self.fail(f"expected {what}, got {got}")

    def take(self) -> Token:
        """The next token; the cursor continues."""
        token = self._tokens[self._next]
        if token.kind is not Kind.END:
            self._next += 1
        return token

    def is_at(self, kind: Kind) -> bool:
        """Whether the next token is of this kind."""
        return self._tokens[self._next].kind is kind

    def is_next(self, text: str) -> bool:
        """Whether the next token is this word or symbol."""
        token = self._tokens[self._next]
        return token.text == text and token.kind is not Kind.STRING

    def is_after_next(self, text: str) -> bool:
        """Whether the token after the next one is this word or symbol."""
        token = self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        return token.text == text and token.kind is not Kind.STRING

    def accept(self, text: str) -> bool:
        """Take the next token if it is this one."""
        if self.is_next(text):
            self._next += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        """Take this very token."""
        if not self.is_next(text):
            self.expected(repr(text))
        return self.take()

    def name(self, what: str = "a name") -> str:
        """Take one name."""
        if self.token.kind is not Kind.NAME:
            self.expected(what)
        return self.take().text

    def path(self, what: str = "a name") -> str:
        """Take a name with dots, perhaps with one in front."""
        parts = ["."] if self.accept(".") else []
        parts.append(self.name(what))
        while self.accept("."):
            parts += (".", self.name(what))
        return "".join(parts)

    def integer(self, what: str, *, low: int, high: int) -> int:
        """Take a number, perhaps with a minus sign, within `[low, high]`."""
        start = self.token.start
        sign = -1 if low < 0 and self.accept("-") else 1
        if self.token.kind is not Kind.INT:
            self.expected(what)
        value = sign * self.unsigned()
        if not low <= value <= high:
            self.fail(f"{what} is out of range: {low} to {high}", at=start)
        return value

    def unsigned(self) -> int:
        """Take an integer literal of at most 64 bits."""
        token = self.take()
        digits = token.text
        base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
        # Twenty-four characters hold any 64-bit number; a longer one is rejected before it costs time.
        significant = digits[2 if base == 16 else 0 :].lstrip("0")
        if base == 8 and not set(digits) <= set("01234567"):
            self.fail("a number with a leading zero is octal: digits 0 to 7", at=token.start)
        value = int(significant or "0", base) if len(significant) <= 24 else MAX_INT + 1
        if value > MAX_INT:
            self.fail("the number has more than 64 bits", at=token.start)
        return value

    def string(self, what: str = "a string") -> bytes:
        """Take a string; adjacent ones are one."""
        parts = []
        while self.is_at(Kind.STRING):
            parts.append(self._unescaped(self.take()))
        if not parts:
            self.expected(what)
        return b"".join(parts)

    def text_string(self, what: str = "a string") -> str:
        """Take a string that must be UTF-8."""
        start = self.token.start
        try:
            return self.string(what).decode()
        except UnicodeDecodeError:
            self.fail(f"{what} is not UTF-8", at=start)

    def _unescaped(self, token: Token) -> bytes:
        try:
            return unescaped(token.text[1:-1])
        except ValueError as error:
            self.fail(f"the string has {error}", at=token.start)


def unescaped(text: str) -> bytes:
    """The bytes of a string literal with its escapes resolved; raises `ValueError` with the reason."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise ValueError("lone surrogates") from None
    return _ESCAPE.sub(_letter, raw) if b"\\" in raw else raw


def _letter(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, named = match.groups()
    if named is not None:
        return _LETTERS[named]
    if octal is not None or hexadecimal is not None:
        return bytes((int(octal or hexadecimal, 8 if octal is not None else 16) & 0xFF,))
    point = int(short or long or b"FFFFFFFF", 16)
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise ValueError(f"a bad escape {match[0].decode()!r}")
    return chr(point).encode()


def _unreadable(text: str, at: int) -> str:
    if text[at] in "\"'":
        return "string without an end on its line"
    return "comment without an end" if text.startswith("/*", at) else f"letter {text[at]!r}"


def quoted(value: bytes) -> str:
    """The string literal of these bytes: what is no plain text is escaped."""
    try:
        letters = value.decode()
    except UnicodeDecodeError:
        letters = value.decode("latin-1")
        return '"' + "".join(_escaped(character, beyond=0x7F) for character in letters) + '"'
    return '"' + "".join(_escaped(character, beyond=0x10FFFF) for character in letters) + '"'


_NAMED: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t", '"': r"\"", "'": r"\'", "\\": r"\\"}


def _escaped(character: str, *, beyond: int) -> str:
    if character in _NAMED:
        return _NAMED[character]
    point = ord(character)
    return character if 0x20 <= point < 0x7F or 0x7F < point <= beyond else f"\\{point:03o}"


def c_escaped(value: bytes) -> str:
    """How a descriptor writes the default of a bytes field."""
    return "".join(_escaped(character, beyond=0) for character in value.decode("latin-1"))
