"""Column types: whether a text can be the type of one column, before any Spark has seen it.

Owns        what a type never has outside brackets: a comma or another sign, a string, a word of column definitions
Leaves      which types there are to Spark, which judges the whole text again
"""

from typing import Final

from streamhouse.errors import StatementError
from streamhouse.format.tokens import TokenKind, tokens_of

_OPENING: Final = "<("
_CLOSING: Final = ">)"
_NOT_TYPES: Final = ("DEFAULT", "GENERATED", "COMMENT", "NOT", "AS", "PRIMARY")


def is_one_type(text: str) -> bool:
    """True for `STRUCT<a: INT, b: STRING>`; False for `INT, b STRING` and `INT DEFAULT f()`."""
    try:
        tokens = list(tokens_of(text))[:-1]
    except StatementError:
        return False
    depth = 0
    for token in tokens:
        if token.kind is TokenKind.SIGN:
            depth += (token.value in _OPENING) - (token.value in _CLOSING)
            if depth < 0 or (depth == 0 and token.value not in _CLOSING):
                return False
        elif depth == 0 and (token.kind is not TokenKind.WORD or token.says(*_NOT_TYPES)):
            return False
    return bool(tokens) and depth == 0
