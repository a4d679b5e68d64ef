"""Untrusted SQL: which statements may be run for a caller who isn't the worker's own user.

Data path   answering, pipelines.building -> Spark's parser -> **check_untrusted** -> `resolver`
Owns        the operators, commands and expressions that may stand in SQL from the wire
Leaves      the lists of functions to `untrusted_functions`; tables and where their rows are to `resolver` and to the
            agents, which keep the definitions

A statement is checked by the plan that Spark's own parser makes of it, before anything is analysed or run: each
operator and expression of it, in subqueries, CTEs and behind EXPLAIN too, must be on a list, and so must the name of
each function and of each option of one. What isn't known here is refused. All fields of all nodes are looked at
(`ParsedTree`): Spark's own walks pass over some."""

import re
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from streamhouse.errors import StatementError
from streamhouse.spark.query.untrusted_functions import (
    FUNCTIONS,
    OPTION_ARGUMENTS,
    OPTIONS,
    REFUSED,
    SCHEMA_ARGUMENT,
    SCHEMAS,
    TABLE_FUNCTIONS,
)
from streamhouse.spark.runtime.jvm import (
    ParsedTree,
    kind_of,
    parse_plan,
    scala_seq,
    walk_everything,
    walk_expression,
)

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
"""Spark's own database, without tables: names in untrusted queries never refer to tables of the worker's user."""

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
"""Relations allowed in queries: they read the tables that they name, and nothing else."""

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

EXPRESSIONS: Final = frozenset(
    (
        *("Add", "AggregateExpression", "Alias", "And", "AnyValue", "AttributeReference", "BitwiseAnd", "BitwiseNot"),
        *("BitwiseOr", "BitwiseXor", "CaseWhen", "Cast", "Coalesce", "Collate", "Concat", "CreateNamedStruct", "Cube"),
        *("CurrentDate", "CurrentRow", "CurrentTime", "CurrentTimestamp", "Divide", "EqualNullSafe", "EqualTo"),
        *("Exists", "First", "GreaterThan", "GreaterThanOrEqual", "GroupingSets", "ILike", "In", "InSubquery"),
        *("IntegralDivide", "IsNotNull", "IsNull", "JsonTable", "LambdaFunction", "Last", "LateralSubquery"),
        *("LessThan", "LessThanOrEqual", "Like", "LikeAll", "LikeAny", "ListQuery", "Literal", "Lower", "MultiAlias"),
        *("Multiply", "NamedArgumentExpression", "Not", "NotLikeAll", "NotLikeAny", "Or", "Overlay", "PipeExpression"),
        *("RLike", "Remainder", "Rollup", "ScalarSubquery", "SemiStructuredExtract", "ShiftLeft", "ShiftRight"),
        *("ShiftRightUnsigned", "SortOrder", "SpecifiedWindowFrame", "StringLocate", "StringTrim", "StringTrimLeft"),
        *("StringTrimRight", "Substring", "Subtract", "TimestampAdd", "TimestampDiff", "UnaryMinus", "UnaryPositive"),
        *("UnboundedFollowing", "UnboundedPreceding", "Unnest", "UnresolvedAlias", "UnresolvedAttribute"),
        *("UnresolvedCollation", "UnresolvedExtractValue", "UnresolvedFunction", "UnresolvedGenerator"),
        *("UnresolvedNamedLambdaVariable", "UnresolvedOrdinal", "UnresolvedPipeAggregateOrdinal", "UnresolvedRegex"),
        *("UnresolvedStar", "UnresolvedStarExceptOrReplace", "UnresolvedWindowExpression", "UnspecifiedFrame"),
        *("WindowExpression", "WindowSpecDefinition"),
    )
)
"""What the parser makes of expressions: columns, literals, operators and calls, which are checked by name."""

NAMING: Final = frozenset(("UnresolvedRelation", "UnresolvedTableOrView"))
"""Operators that name a table; one of ours has a name of one part."""

_TYPE: Final = re.compile(r"\s*[^\W\d]|\s*`")
"""How a schema begins that isn't JSON: with the name of a column or type."""

_UNKNOWN: Final = "it isn't known to compute from its arguments alone"
_BUILTIN: Final = (("system", "builtin"), ("builtin",))
_RUN_TIME_NAMES: Final = ("ExpressionWithUnresolvedIdentifier", "PlanWithUnresolvedIdentifier")
"""The nodes of an IDENTIFIER(…) whose argument isn't a literal: a name that is known only when the query runs."""


def check_untrusted(session: SparkSession, text: str) -> None:
    """Raise `StatementError` for what may not be run for this caller, and Spark's ParseException for what is no SQL."""
    if VARIABLE in text:
        raise _rejection("${…} can't be used through agents: it inserts variables and settings of the process")
    plan = parse_plan(session, text)
    kind = kind_of(plan)
    if kind in WRAPPERS:
        _check(session, getattr(plan, WRAPPERS[kind])(), OPERATORS)
    else:
        _check(session, plan, OPERATORS | COMMANDS)


def check_analyzed(frame: DataFrame) -> None:
    """Raise `StatementError` where a name turned out to be no column: `user`, in backticks too, may be the worker's
    user. The plan says so, whatever the name was written as."""
    plan = frame._jdf.queryExecution().analyzed()
    jvm: Any = frame.sparkSession._jvm
    if not plan.containsPattern(jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()):
        return
    functions = _Functions(frame.sparkSession)
    refused = {functions.class_of(name) for name in REFUSED}
    for operator in walk_everything(plan):
        for expression in scala_seq(operator.expressions()):
            if any(str(each.getClass().getName()) in refused for each in walk_expression(expression)):
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
    if kind in _RUN_TIME_NAMES:
        raise _rejection("IDENTIFIER can't be used through agents: it makes names of text")
    if kind not in allowed:
        raise _rejection(f"only queries can be run through agents, and this is a {kind}")
    if kind in NAMING:
        _check_table(_parts(operator.multipartIdentifier()))
    if kind == "UnresolvedRelation" and not operator.options().isEmpty():
        raise _rejection("options of a table can't be given through agents: its definition has them")
    if kind == "UnresolvedFunctionName":
        _builtin_name(_parts(operator.multipartIdentifier()))
    if kind == "UnresolvedTableValuedFunction":
        functions.check_table_function(_builtin_name(_parts(operator.name())))


def _check_expression(expression: Any, functions: "_Functions") -> None:
    kind = kind_of(expression)
    if kind in _RUN_TIME_NAMES:
        raise _rejection("IDENTIFIER can't be used through agents: it makes names of text")
    if kind not in EXPRESSIONS:
        raise _rejection(f"only expressions of columns can be used through agents, and this is a {kind}")
    if kind == "UnresolvedFunction":
        parts = _parts(expression.nameParts())
        functions.check(_builtin_name(parts))
        _check_options(parts[-1], scala_seq(expression.arguments()))
        _check_schema(parts[-1], scala_seq(expression.arguments()))
    elif kind == "UnresolvedGenerator":
        name = expression.name()
        functions.check(_builtin_name((*_parts(name.database().toList()), str(name.funcName()).lower())))


class _Functions:
    """The functions that Spark has: those that aren't on our lists are refused."""

    def __init__(self, session: SparkSession) -> None:
        self._catalog: Any = session._jsparkSession.sessionState().catalog()

    def check(self, name: str) -> None:
        """A function that Spark doesn't have is left to Spark, whose error suggests similar names."""
        if name not in FUNCTIONS and (name in REFUSED or self._function(name).isDefined()):
            raise _rejection(f"{name} can't be used through agents: {REFUSED.get(name, _UNKNOWN)}")

    def check_table_function(self, name: str) -> None:
        if name not in TABLE_FUNCTIONS:
            raise _rejection(f"{name} can't be used through agents: {REFUSED.get(name, _UNKNOWN)}")

    def class_of(self, name: str) -> str | None:
        found = self._function(name)
        return str(found.get().getClassName()) if found.isDefined() else None

    def _function(self, name: str) -> Any:
        return self._catalog.lookupBuiltinOrTempFunction(name)


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
    for options in arguments[OPTION_ARGUMENTS.get(name, len(arguments)) :]:
        values = scala_seq(options.arguments()) if _is_call(options, "map") else [options]
        if not all(kind_of(each) == "Literal" for each in values):
            raise _rejection(
                f"options of {name} that aren't written out, map('mode', 'PERMISSIVE'), can't be used through agents:"
                " they may name files"
            )
        for option in (str(each.value()) for each in values[::2]):
            if option.lower() not in OPTIONS:
                raise _rejection(f"the option {option} of {name} can't be used through agents: it may read files")


def _check_schema(name: str, arguments: list[Any]) -> None:
    position = SCHEMA_ARGUMENT.get(name, len(arguments))
    for schema in arguments[position : position + 1]:
        is_text = kind_of(schema) == "Literal" and _TYPE.match(str(schema.value()))
        if not is_text and not _is_call(schema, *SCHEMAS):
            raise _rejection(
                f"a schema of {name} can't be anything through agents but a text like 'id BIGINT, name STRING', or"
                f" {SCHEMAS[0]}('…'): as JSON it may have defaults, which are evaluated"
            )


def _rejection(what: str) -> StatementError:
    return StatementError(1, 1, what, HINT)
