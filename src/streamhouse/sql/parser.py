"""Parser of SQL files: CREATE, DROP and SHOW of tables, pipelines and views; everything else is a query for Spark.

Data path   a file, a line in the shell -> **parse** -> statements, each with its position in the text
Owns        the statements that Spark doesn't have; where each begins and ends
Leaves      tokens to `sql.lexer`, options to
            `sql.options`, SELECTs to Spark

    CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name [(column TYPE, …, PRIMARY KEY (a, b))] WITH (connector = '…', …)
    CREATE [OR REPLACE] PIPELINE name [WITH (option = '…', …)] AS INSERT INTO target [(columns)] SELECT …
    CREATE [OR REPLACE] MATERIALIZED VIEW name [WITH (option = '…', …)] [KEY (a, b)] AS SELECT …
    DROP TABLE | PIPELINE | MATERIALIZED VIEW [IF EXISTS] name
    SHOW TABLES | PIPELINES | VIEWS

Everything else is a query that Spark parses.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from streamhouse.errors import InvalidTopicName, StatementError
from streamhouse.model.names import check_topic_name
from streamhouse.model.table import Column, Connector, Table
from streamhouse.sql.lexer import Token, TokenCursor, TokenKind, error_at, position, tokenize
from streamhouse.sql.options import PIPELINE_OPTIONS, REQUIRED, TABLE_OPTIONS, VIEW_OPTIONS, Check
from streamhouse.sql.statements import CreatePipeline, CreateTable, CreateView, Drop, Query, Show, Statement

__all__ = [
    "CreatePipeline",
    "CreateTable",
    "CreateView",
    "Drop",
    "Query",
    "Show",
    "Statement",
    "StatementError",
    "parse",
    "parse_all",
    "position",
]

_QUERY_WORDS: Final = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
_SHOWN: Final = {"TABLES": "tables", "PIPELINES": "pipelines", "VIEWS": "views"}
CALLED_HERE: Final = {
    **dict.fromkeys(("kafka", "upsert-kafka", "streamhouse"), Connector.TOPIC.value),
    **dict.fromkeys(("filesystem", "file"), Connector.FILES.value),
    **dict.fromkeys(("jdbc", "postgres"), Connector.POSTGRESQL.value),
    **dict.fromkeys(("print", "stdout"), Connector.CONSOLE.value),
    **dict.fromkeys(("deltalake", "delta-lake"), Connector.DELTA.value),
}
"""Names of connectors in other systems."""
_OPENING: Final = "([<{"
_CLOSING: Final = ")]>}"


def parse(text: str) -> tuple[Statement, ...]:
    """The statements of a file, in order; raises `StatementError` for the first that can't be."""
    statements, errors = parse_all(text)
    if errors:
        raise errors[0]
    return statements


def parse_all(text: str) -> tuple[tuple[Statement, ...], tuple[StatementError, ...]]:
    """The statements that can be understood, and what is wrong with each of the others."""
    statements: list[Statement] = []
    errors: list[StatementError] = []
    try:
        for tokens in _cut(text):
            try:
                statements.append(_Parser(text, tokens).statement())
            except StatementError as error:
                errors.append(error)
    except StatementError as error:  # unclosed: the statements behind it have no known end
        errors.append(error)
    return tuple(statements), tuple(errors)


def _cut(text: str) -> Iterator[list[Token]]:
    """The tokens of each statement; semicolons end them."""
    tokens: list[Token] = []
    for token in tokenize(text):
        if not token.is_sign(";") and token.kind is not TokenKind.END:
            tokens.append(token)
        elif tokens:
            yield tokens
            tokens = []


class _Parser(TokenCursor):
    """One statement, from left to right."""

    def statement(self) -> Statement:
        if self._take("CREATE"):
            is_replace = self._take("OR", "REPLACE")
            if self._take("PIPELINE"):
                return self._pipeline(is_replace)
            if self._take("MATERIALIZED", "VIEW"):
                return self._view(is_replace)
            if self._take("TABLE") and not self._is_sparks_table():
                return self._table(is_replace)
        elif self._take("DROP"):
            for words, kind in ((["TABLE"], "table"), (["PIPELINE"], "pipeline"), (["MATERIALIZED", "VIEW"], "view")):
                if self._take(*words):
                    return self._drop(kind)
        elif self._take("SHOW") and (show := self._show()):
            return show
        return Query(text=self._whole, span=self._span)

    # --- statements

    def _table(self, is_replace: bool) -> CreateTable:
        if_not_exists = self._take("IF", "NOT", "EXISTS")
        name = self._name("a table's name")
        columns, key = self._columns() if self._next().is_sign("(") else (None, ())
        if not self._next().is_keyword("WITH"):
            raise self._unexpected("WITH (connector = 'topic')", "name its connector: WITH (connector = 'topic')")
        at = self._next().start
        given = self._options_given()
        connector, options = self._table_options(given, at)
        self._end()
        table = Table(
            name=name,
            connector=connector,
            columns=columns,
            key=key,
            options=options,
            text=self._whole,
        )
        return CreateTable(
            text=self._whole, span=self._span, table=table, is_replace=is_replace, if_not_exists=if_not_exists
        )

    def _pipeline(self, is_replace: bool) -> CreatePipeline:
        name = self._name("a pipeline's name")
        options = self._options(PIPELINE_OPTIONS, "a pipeline")
        self._need("AS", "CREATE PIPELINE name AS INSERT INTO topic SELECT …")
        if not self._take("INSERT"):
            raise self._unexpected("INSERT INTO", "name a target: AS INSERT INTO topic SELECT …")
        self._need("INTO", "INSERT INTO topic SELECT …")
        self._take("TABLE")
        target = self._name("the name of a table or topic")
        columns = self._names() if self._next().is_sign("(") and not self._is_subquery() else ()
        select, start = self._select()
        return CreatePipeline(
            text=self._whole,
            span=self._span,
            name=name,
            target=target,
            columns=columns,
            select=select,
            select_start=start,
            options=options,
            is_replace=is_replace,
        )

    def _view(self, is_replace: bool) -> CreateView:
        name = self._name("a view's name")
        key = self._names() if self._take("KEY") else ()
        options = self._options(VIEW_OPTIONS, "a view")
        if not key and self._take("KEY"):
            key = self._names()
        self._need("AS", "CREATE MATERIALIZED VIEW name AS SELECT …")
        select, start = self._select()
        return CreateView(
            text=self._whole,
            span=self._span,
            name=name,
            key=key,
            select=select,
            select_start=start,
            options=options,
            is_replace=is_replace,
        )

    def _drop(self, kind: str) -> Drop:
        if_exists = self._take("IF", "EXISTS")
        name = self._name(f"a {kind}'s name")
        self._end()
        return Drop(text=self._whole, span=self._span, kind=kind, name=name, if_exists=if_exists)

    def _show(self) -> Show | None:
        """None for what Spark shows: databases, functions, tables that are like something."""
        self._take("MATERIALIZED")
        word = self._next()
        if len(self._tokens) != self._at + 1 or not word.is_keyword(*_SHOWN):
            return None
        return Show(text=self._whole, span=self._span, kind=_SHOWN[word.value.upper()])

    # --- their parts

    def _columns(self) -> tuple[tuple[Column, ...], tuple[str, ...]]:
        """`(a INT, b STRING, PRIMARY KEY (a))`."""
        columns: list[Column] = []
        key: tuple[str, ...] = ()
        self._sign("(")
        while True:
            at = self._next()
            if self._take("PRIMARY", "KEY"):
                key = self._key(key, at)
            else:
                column, is_key = self._column()
                if column.name.lower() in {each.name.lower() for each in columns}:
                    raise self._error(at, f"a column is there twice: {column.name}")
                columns.append(column)
                key = (column.name,) if is_key else key
            if not self._comma():
                break
        self._check_key(key, columns)
        return tuple(columns), key

    def _key(self, before: tuple[str, ...], at: Token) -> tuple[str, ...]:
        if before:
            raise self._error(at, "there are two primary keys", "name all columns in one: PRIMARY KEY (a, b)")
        key = self._names()
        self._take("NOT", "ENFORCED")
        return key

    def _check_key(self, key: Iterable[str], columns: Sequence[Column]) -> None:
        known = [column.name for column in columns]
        for name in key:
            if name not in known:
                raise self._error(
                    self._tokens[self._at - 1], f"the primary key names no column: {name}", _suggestion(name, known)
                )

    def _column(self) -> tuple[Column, bool]:
        """A name, and a type up to the comma that isn't within it."""
        name = self._column_name()
        first, depth = self._next(), 0
        while (token := self._next()).kind is not TokenKind.END:
            if depth == 0 and (token.value in ",)" or token.is_keyword("PRIMARY", "NOT", "COMMENT", "DEFAULT")):
                break
            if token.kind is TokenKind.SIGN:
                depth += (token.value in _OPENING) - (token.value in _CLOSING)
            self._at += 1
        if self._next() is first:
            raise self._unexpected("a type", f"write the type behind the name: {name} STRING")
        column = Column(name=name, type=self._text[first.start : self._tokens[self._at - 1].stop])
        is_key = self._take("PRIMARY", "KEY")
        if self._next().is_keyword("NOT", "COMMENT", "DEFAULT"):
            raise self._unexpected("a comma", "a column has a name and a type; any may be null")
        return column, is_key

    def _column_name(self) -> str:
        token = self._next()
        if token.kind not in (TokenKind.WORD, TokenKind.NAME):
            raise self._unexpected("a column's name")
        self._at += 1
        return token.value

    def _names(self) -> tuple[str, ...]:
        """`(a, b)`: columns."""
        self._sign("(")
        names = [self._column_name()]
        while self._comma():
            names.append(self._column_name())
        return tuple(names)

    def _table_options(self, given: Mapping[str, tuple[Token, Token]], at: int) -> tuple[Connector, Mapping[str, str]]:
        kinds = [kind.value for kind in TABLE_OPTIONS]
        if "connector" not in given:
            raise error_at(
                self._text, at, "a table needs a connector", f"WITH (connector = 'topic'); there are {', '.join(kinds)}"
            )
        _, value = given["connector"]
        if value.value.lower() not in kinds:
            known = CALLED_HERE.get(value.value.lower())
            hint = f"there are {', '.join(kinds)}" if known is None else f"it is called {known} here"
            raise self._error(value, f"there is no connector {value.value!r}", hint)
        connector = Connector(value.value.lower())
        rest = {name: both for name, both in given.items() if name != "connector"}
        options = self._checked(rest, TABLE_OPTIONS[connector], f"a table with connector {connector.value}")
        for name in REQUIRED.get(connector, ()):
            if name not in options:
                raise self._error(
                    value, f"connector {connector.value} needs the option {name}", f"WITH (…, {name} = '…')"
                )
        return connector, options

    def _options(self, allowed: Mapping[str, Check], what: str) -> Mapping[str, str]:
        return self._checked(self._options_given(), allowed, what) if self._next().is_keyword("WITH") else {}

    def _options_given(self) -> dict[str, tuple[Token, Token]]:
        """`WITH (name = 'value', …)`; names in lower case."""
        self._at += 1
        self._sign("(")
        given: dict[str, tuple[Token, Token]] = {}
        if self._next().is_sign(")"):
            self._at += 1
            return given
        while True:
            name, value = self._option()
            if name.value.lower() in given:
                raise self._error(name, f"an option is there twice: {name.value}")
            given[name.value.lower()] = name, value
            if not self._comma():
                return given

    def _option(self) -> tuple[Token, Token]:
        name = self._next()
        if name.kind not in (TokenKind.WORD, TokenKind.NAME, TokenKind.TEXT):
            raise self._unexpected("an option's name", "WITH (trigger = '10 seconds', …)")
        self._at += 1
        self._sign("=")
        value = self._next()
        if value.kind not in (TokenKind.WORD, TokenKind.TEXT, TokenKind.NUMBER):
            raise self._unexpected("a value", f"{name.value} = '…'")
        self._at += 1
        return name, value

    def _checked(
        self, given: Mapping[str, tuple[Token, Token]], allowed: Mapping[str, Check], what: str
    ) -> Mapping[str, str]:
        for name, (token, value) in given.items():
            if name not in allowed:
                raise self._error(token, f"{what} has no option {token.value}", _suggestion(name, list(allowed)))
            try:
                allowed[name](value.value)
            except ValueError as error:
                raise self._error(value, f"{name} can't be {value.value!r}", f"it may be {error}") from None
        return {name: value.value for name, (_, value) in given.items()}

    def _select(self) -> tuple[str, int]:
        start = self._next()
        if not (start.is_keyword(*_QUERY_WORDS) or start.is_sign("(")):
            raise self._unexpected("SELECT")
        return self._text[start.start : self._span[1]], start.start

    def _is_subquery(self) -> bool:
        behind = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else self._next()
        return behind.is_keyword(*_QUERY_WORDS) or behind.is_sign("(")

    def _is_sparks_table(self) -> bool:
        """Whether this is a table of Spark's own: `CREATE TABLE x USING parquet`, `CREATE TABLE x AS SELECT …`."""
        depth = 0
        for token in self._tokens[self._at :]:
            if token.is_sign("(") or token.is_sign(")"):
                depth += 1 if token.value == "(" else -1
            elif depth == 0 and token.is_keyword("USING", "AS", "STORED", "LIKE", "WITH"):
                return not token.is_keyword("WITH")
        return False

    def _name(self, what: str) -> str:
        """A name that a topic could have; with dots or dashes, only in backticks."""
        token = self._next()
        if token.kind not in (TokenKind.WORD, TokenKind.NAME):
            raise self._unexpected(what)
        self._at += 1
        behind = self._next()
        if token.kind is TokenKind.WORD and (behind.is_sign(".") or behind.is_sign("-")):
            raise self._error(
                behind, f"a name with {behind.value!r} needs backticks", f"`{token.value}{behind.value}…`"
            )
        try:
            check_topic_name(token.value)
        except InvalidTopicName:
            raise self._error(
                token, f"{token.value!r} can't be a name", "1 to 249 letters, digits, dots, dashes, underscores"
            ) from None
        return token.value


def _suggestion(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}" if close else f"there are {', '.join(known)}" if known else "there are none"
