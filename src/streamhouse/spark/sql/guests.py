"""Guests: what may be asked by those who come through an agent, and aren't the worker's own user.

Data path   answering -> **guests**: yes, or a refusal with words
Owns        which statements and functions are for the worker's user alone: those that reach its files and processes
Leaves      tables and their places to `binding`: what has a definition may be read by everybody who reaches an agent

A question begins with a word that questions begin with, and has none of the words below, quoted or not. That refuses
a column named `insert` as well, which is the lesser evil.
"""

from typing import Final

from streamhouse.errors import StatementError
from streamhouse.format.tokens import Token, TokenKind, error_at, tokens_of

HINT: Final = "as the worker's user, with `streamhouse sql`, it can be asked"
FIRST: Final = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "DESCRIBE", "DESC", "EXPLAIN", "SHOW")
REFUSED: Final = {
    "EXECUTE": "it runs text as SQL",
    "IDENTIFIER": "it makes names of text",
    "INSERT": "it writes",
    "JAVA_METHOD": "it calls Java",
    "REFLECT": "it calls Java",
    "TRY_REFLECT": "it calls Java",
    "USING": "",
}


def check_guest(text: str) -> None:
    """Raises `StatementError` for what a guest may not ask."""
    tokens = [token for token in tokens_of(text) if token.kind is not TokenKind.END]
    opening = next((token for token in tokens if not token.is_sign("(")), None)
    if opening is None or not opening.says(*FIRST):
        raise _refusal(text, opening.start if opening is not None else 0, "only questions can be asked through agents")
    for at, token in enumerate(tokens):
        why = REFUSED.get(token.value.upper()) if token.kind in (TokenKind.WORD, TokenKind.NAME) else None
        if why:
            raise _refusal(text, token.start, f"{token.value} can't be used through agents: {why}")
        if why == "" and _is_script(tokens, at):
            raise _refusal(text, token.start, "scripts can't be run through agents")


def _is_script(tokens: list[Token], at: int) -> bool:
    """`TRANSFORM (…) USING 'a command'`; a join's USING has names behind it."""
    return at + 1 < len(tokens) and tokens[at + 1].kind is TokenKind.TEXT


def _refusal(text: str, at: int, what: str) -> StatementError:
    return error_at(text, at, what, HINT)
