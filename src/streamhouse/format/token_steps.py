"""Token steps: going through the tokens of one statement, from left to right.

Data path   tokens -> **steps** (is it this? then go on) -> whoever knows what statements look like
Owns        where we are; what is said of a token that nobody expected there
Leaves      the tokens to `format.tokens`, what may follow what to `format.statements`
"""

from collections.abc import Sequence

from streamhouse.errors import StatementError
from streamhouse.format.tokens import Token, TokenKind, error_at


class TokenSteps:
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
        found = self._tokens[self._at : self._at + len(words)]
        if len(found) < len(words) or not all(token.says(word) for token, word in zip(found, words, strict=True)):
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
        """Whether a list goes on; its closing bracket is passed otherwise."""
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

    def _unexpected(self, wanted: str, hint: str = "") -> StatementError:
        token = self._next()
        found = self._text[token.start : token.stop] or "the end"
        return self._error(token, f"expected {wanted}, found {found}", hint)

    def _error(self, token: Token, what: str, hint: str = "") -> StatementError:
        return error_at(self._text, token.start, what, hint)
