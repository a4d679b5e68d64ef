"""Untrusted SQL: which statements may be run for a caller who isn't the worker's own user.

Data path   answering, pipelines.building -> Spark's parser -> **check_untrusted** -> `resolver`
Owns        the operators, commands and functions that may stand in SQL from the wire
Leaves      tables and where their rows are to `resolver` and to the agents, which keep the definitions

A statement is judged by the plan that Spark's own parser makes of it, before anything is analysed or run: each operator
of it, in subqueries, CTEs and behind EXPLAIN too, must be on a list. What isn't known here is refused. Functions are
judged by the group that Spark documents them in; those that call Java or read files are in none that is allowed. All
fields of all nodes are looked at (`ParsedTree`): Spark's own walks pass over some.
"""

from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from streamhouse.errors import StatementError
from streamhouse.spark.runtime.jvm import (
    ParsedTree,
    kind_of,
    parse_plan,
    scala_seq,
    walk_everything,
    walk_expression,
)
from streamhouse.sql.lexer import tokenize

HINT: Final = (
    "queries are allowed (SELECT, WITH, VALUES, TABLE), EXPLAIN of one, DESCRIBE, SHOW COLUMNS, FUNCTIONS and TABLES;"
    " as the worker's user, with `streamhouse sql`, it can be run"
)
PLAIN_TEXT: Final = {"spark.sql.variable.substitute": "false"}
"""Settings of a Spark that runs SQL from the wire: with this one, `${env:HOME}` in a text, a name or a type is nothing
but these letters. Spark's own default puts the variables and settings of its process there."""
VARIABLE: Final = "${"
"""Refused in queries whatever the settings are: Spark's parser looks at those of the thread, not of the session."""
UNTRUSTED_DATABASE: Final = "streamhouse_guests"
"""Of Spark's own, without tables: names of callers who aren't trusted never mean what the worker's user made."""

DEFINITION_HINT: Final = (
    "leave it out: a pipeline or view is a query over tables and topics, with functions of their columns"
)

OPERATORS: Final = frozenset(
    (
        *("Aggregate", "AsOfJoin", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join"),
        *("LateralJoin", "LocalLimit", "LocalRelation", "NamedStreamingRelation", "Offset", "OneRowRelation"),
        *("PipeOperator", "Pivot", "Project", "Repartition", "RepartitionByExpression", "Sample", "Sort"),
        *("SubqueryAlias", "Union", "UnresolvedEventTimeWatermark", "UnresolvedHaving", "UnresolvedHint", "LimitAll"),
        *("UnresolvedInlineTable", "UnresolvedQualify", "UnresolvedRelation", "UnresolvedSubqueryColumnAliases"),
        *("UnresolvedTableValuedFunction", "UnresolvedTVFAliases", "UnresolvedWith", "Unpivot", "WithWindowDefinition"),
    )
)
"""Of queries: they read the tables that they name, and nothing else."""

COMMANDS: Final = frozenset(
    (
        *("DescribeColumn", "DescribeFunction", "DescribeRelation", "ShowColumns", "ShowFunctions"),
        *("CurrentNamespace", "UnresolvedFunctionName", "UnresolvedTableOrView"),
        "UnresolvedAttribute",
    )
)
"""Commands that describe columns and functions, and what they name."""

WRAPPERS: Final = {"ExplainCommand": "logicalPlan", "DescribeQueryCommand": "plan"}
"""Commands around a query that Spark keeps where a walk through children doesn't come."""

FUNCTION_GROUPS: Final = frozenset(
    (
        *("agg_funcs", "array_funcs", "avro_funcs", "bitwise_funcs", "collection_funcs", "conditional_funcs"),
        *("conversion_funcs", "csv_funcs", "datetime_funcs", "generator_funcs", "hash_funcs", "json_funcs"),
        *("lambda_funcs", "map_funcs", "math_funcs", "predicate_funcs", "sketch_funcs", "st_funcs", "string_funcs"),
        *("struct_funcs", "url_funcs", "variant_funcs", "vector_funcs", "window_funcs", "xml_funcs"),
    )
)
"""Spark's names for its groups of functions, of those that compute from their arguments alone."""

FUNCTIONS: Final = frozenset(
    (
        *("aes_decrypt", "aes_encrypt", "assert_true", "bitmap_bit_position", "bitmap_bucket_number", "bitmap_count"),
        *("hmac", "monotonically_increasing_id", "raise_error", "try_aes_decrypt", "typeof", "uuid", "version"),
    )
)
"""Of the group `misc_funcs`, in which those that call Java are as well."""

OPENING: Final = frozenset(
    (
        *("xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long", "xpath_number"),
        *("xpath_short", "xpath_string"),
    )
)
"""Functions whose parser opens the file or address that a document's DOCTYPE names; the one of `from_xml` doesn't."""

TABLE_FUNCTIONS: Final = frozenset(
    (
        *("collations", "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode"),
        *("posexplode_outer", "range", "sql_keywords", "stack", "variant_explode", "variant_explode_outer"),
    )
)

PROCESS_WORDS: Final = ("USER", "CURRENT_USER", "SESSION_USER", "CURRENT_PATH")
"""Words that may be columns, and otherwise are functions without parentheses that say something of the process."""
PROCESS_FUNCTIONS: Final = ("CurrentUser", "CurrentPath")

NAMING: Final = frozenset(("UnresolvedRelation", "UnresolvedTableOrView"))
"""Operators that name a table; one of ours has a name of one part."""

OPTION_PLACES: Final = {"from_xml": 2, "schema_of_xml": 1, "from_avro": 2, "schema_of_avro": 1}
"""Functions whose options may name files to read, and how many arguments stand before them."""
OPTIONS_THAT_READ: Final = frozenset(("rowvalidationxsdpath", "avroschemaurl"))

SCHEMA_PLACES: Final = {"from_json": 1, "from_csv": 1, "from_xml": 1, "variant_get": 2, "try_variant_get": 2}
"""Functions whose schema is a text that is parsed when the query is analysed, and how many arguments stand before it.
In a schema as JSON a column may have a default, which is an expression that Spark evaluates."""
SCHEMAS: Final = ("schema_of_json", "schema_of_csv", "schema_of_xml")
"""Functions that make such a text of data."""
_JSON: Final = ("{", "[", '"')

_BUILTIN: Final = (("system", "builtin"), ("builtin",))
_RUN_TIME_NAMES: Final = "UnresolvedIdentifier"
"""What IDENTIFIER(…) of something that isn't a plain text becomes: a name that is known only when it runs."""


def check_untrusted(session: SparkSession, text: str) -> None:
    """Raise `StatementError` for what may not be run for this caller, and Spark's ParseException for what is no SQL."""
    if VARIABLE in text:
        raise _rejection("${…} can't be used through agents: it stands for variables and settings of the process")
    plan = parse_plan(session, text)
    kind = kind_of(plan)
    if kind in WRAPPERS:
        _check(session, getattr(plan, WRAPPERS[kind])(), OPERATORS)
    else:
        _check(session, plan, OPERATORS | COMMANDS)


def check_analyzed(frame: DataFrame, text: str) -> None:
    """Raise `StatementError` where a plain word turned out to be no column: `SELECT user` may be the worker's user."""
    if not any(token.is_keyword(*PROCESS_WORDS) for token in tokenize(text)):
        return
    for operator in walk_everything(frame._jdf.queryExecution().analyzed()):
        for expression in scala_seq(operator.expressions()):
            if any(kind_of(each) in PROCESS_FUNCTIONS for each in walk_expression(expression)):
                raise _rejection(
                    "what is the worker's own can't be read through agents: name a column, or leave it out"
                )


def of_definition(error: Exception) -> Exception:
    """An error of a pipeline's or view's query: these don't run with `streamhouse sql`."""
    if isinstance(error, StatementError) and error.hint == HINT:
        return StatementError(error.line, error.column, error.text, DEFINITION_HINT)
    return error


def _check(session: SparkSession, plan: Any, allowed: frozenset[str]) -> None:
    functions = _Functions(session)
    for is_operator, node in ParsedTree(session, plan).nodes():
        if is_operator:
            _check_operator(node, allowed, functions)
        else:
            _check_expression(node, functions)


def _check_operator(operator: Any, allowed: frozenset[str], functions: "_Functions") -> None:
    kind = kind_of(operator)
    if kind not in allowed:
        raise _rejection(f"only queries can be run through agents, and this is a {kind}")
    if kind in NAMING:
        _check_table(_parts(operator.multipartIdentifier()))
    if kind == "UnresolvedTableValuedFunction":
        functions.check_table_function(_builtin_name(_parts(operator.name())))


def _check_expression(expression: Any, functions: "_Functions") -> None:
    kind = kind_of(expression)
    if _RUN_TIME_NAMES in kind:
        raise _rejection("IDENTIFIER can't be used through agents: it makes names of text")
    if kind == "UnresolvedFunction":
        parts = _parts(expression.nameParts())
        functions.check(_builtin_name(parts))
        _check_options(parts[-1], scala_seq(expression.arguments()))
        _check_schema(parts[-1], scala_seq(expression.arguments()))
    elif kind == "UnresolvedGenerator":
        functions.check(str(expression.name().funcName()).lower())


class _Functions:
    """Spark's own list of functions, with the group of each."""

    def __init__(self, session: SparkSession) -> None:
        jvm: Any = session._jvm
        self._registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
        self._identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
        self._known: set[str] = set()

    def check(self, name: str) -> None:
        """A function that Spark doesn't have is left to Spark, whose error suggests similar names."""
        if name in self._known or name in FUNCTIONS:
            return
        if name in OPENING:
            raise _rejection(f"{name} can't be used through agents: it opens what a document names; use from_xml")
        function = self._registry.lookupFunction(self._identifier(name))
        if function.isDefined() and function.get().getGroup() not in FUNCTION_GROUPS:
            raise _rejection(f"{name} can't be used through agents: it reaches beyond its arguments")
        self._known.add(name)

    def check_table_function(self, name: str) -> None:
        if name not in TABLE_FUNCTIONS:
            raise _rejection(f"{name} can't be used through agents: it reaches beyond its arguments")


def _parts(name: Any) -> tuple[str, ...]:
    return tuple(str(part).lower() for part in scala_seq(name))


def _check_table(parts: tuple[str, ...]) -> None:
    if len(parts) > 1:
        named = ".".join(parts)
        raise _rejection(
            f"{named} can't be read through agents: tables there have one name, in backticks if it has dots"
        )


def _builtin_name(parts: tuple[str, ...]) -> str:
    """`system.builtin.abs` is abs; functions of other schemas aren't allowed."""
    if len(parts) > 1 and parts[:-1] not in _BUILTIN:
        raise _rejection(f"{'.'.join(parts)} can't be used through agents: only Spark's own functions can")
    return parts[-1]


def _is_call(expression: Any, *names: str) -> bool:
    return kind_of(expression) == "UnresolvedFunction" and _parts(expression.nameParts()) in [(name,) for name in names]


def _check_options(name: str, arguments: list[Any]) -> None:
    """Options are written out, `map('mode', 'PERMISSIVE')`, so that it can be seen that none names a file."""
    for options in arguments[OPTION_PLACES.get(name, len(arguments)) :]:
        texts = [each for each in walk_expression(options) if each is not options]
        written_out = _is_call(options, "map") and all(kind_of(each) == "Literal" for each in texts)
        read = [str(each.value()) for each in texts if written_out and str(each.value()).lower() in OPTIONS_THAT_READ]
        if read or not written_out:
            what = f"the option {read[0]} of {name}" if read else f"options of {name} that aren't written out"
            raise _rejection(f"{what} can't be used through agents: it may read files")


def _check_schema(name: str, arguments: list[Any]) -> None:
    place = SCHEMA_PLACES.get(name, len(arguments))
    for schema in arguments[place : place + 1]:
        is_text = kind_of(schema) == "Literal" and not str(schema.value()).strip().startswith(_JSON)
        if not is_text and not _is_call(schema, *SCHEMAS):
            raise _rejection(
                f"a schema of {name} can't be anything through agents but a text like 'id BIGINT, name STRING', or"
                f" {SCHEMAS[0]}('…'): as JSON it may have defaults, which are evaluated"
            )


def _rejection(what: str) -> StatementError:
    return StatementError(1, 1, what, HINT)
