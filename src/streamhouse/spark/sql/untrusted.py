"""Untrusted SQL: which statements may be run for a caller who isn't the worker's own user.

Data path   answering, pipelines.building -> Spark's parser -> **check_untrusted** -> `binding`
Owns        the operators, commands and functions that may stand in SQL from the wire
Leaves      tables and where their rows are to `binding` and to the agents, which keep the definitions

A statement is judged by the plan that Spark's own parser makes of it, before anything is analysed or run: each operator
of it, in subqueries, CTEs and behind EXPLAIN too, must be on a list. What isn't known here is refused. Functions are
judged by the group that Spark documents them in; those that call Java or read files are in none that is allowed.
"""

from typing import Any, Final

from pyspark.sql import SparkSession

from streamhouse.errors import StatementError
from streamhouse.spark.jvm import kind_of, parse_plan, scala_seq, walk_everything, walk_expression

HINT: Final = "as the worker's user, with `streamhouse sql`, it can be asked"

OPERATORS: Final = frozenset(
    (
        *("Aggregate", "AsOfJoin", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join"),
        *("LateralJoin", "LocalLimit", "LocalRelation", "NamedStreamingRelation", "Offset", "OneRowRelation"),
        *("PipeOperator", "Pivot", "Project", "Repartition", "RepartitionByExpression", "Sample", "Sort"),
        *("SubqueryAlias", "Union", "UnresolvedEventTimeWatermark", "UnresolvedHaving", "UnresolvedHint"),
        *("UnresolvedInlineTable", "UnresolvedRelation", "UnresolvedSubqueryColumnAliases", "UnresolvedTVFAliases"),
        *("UnresolvedTableValuedFunction", "UnresolvedWith", "Unpivot", "WithWindowDefinition"),
    )
)
"""Of queries: they read the tables that they name, and nothing else."""

COMMANDS: Final = frozenset(
    (
        *("DescribeColumn", "DescribeFunction", "DescribeRelation", "ShowColumns", "ShowFunctions", "ShowTables"),
        *("CurrentNamespace", "UnresolvedFunctionName", "UnresolvedNamespace", "UnresolvedTableOrView"),
        "UnresolvedAttribute",
    )
)
"""That tell of columns and functions, and what they name."""

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

TABLE_FUNCTIONS: Final = frozenset(
    (
        *("collations", "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode"),
        *("posexplode_outer", "range", "sql_keywords", "stack", "variant_explode", "variant_explode_outer"),
    )
)

_RUN_TIME_NAMES: Final = "UnresolvedIdentifier"
"""What IDENTIFIER(…) of something that isn't a plain text becomes: a name that is known only when it runs."""


def check_untrusted(session: SparkSession, text: str) -> None:
    """Raise `StatementError` for what may not be run for this caller, and Spark's ParseException for what is no SQL."""
    plan = parse_plan(session, text)
    functions = _Functions(session)
    kind = kind_of(plan)
    if kind in WRAPPERS:
        plan = getattr(plan, WRAPPERS[kind])()
        _check(plan, OPERATORS, functions)
    else:
        _check(plan, OPERATORS | COMMANDS, functions)


def _check(plan: Any, allowed: frozenset[str], functions: "_Functions") -> None:
    for operator in walk_everything(plan):
        kind = kind_of(operator)
        if kind not in allowed:
            raise _refused(f"only queries can be asked through agents, and this is a {kind}")
        if kind == "UnresolvedTableValuedFunction":
            functions.check_table_function(_name(operator.name()))
        for expression in scala_seq(operator.expressions()):
            _check_expression(expression, functions)


def _check_expression(expression: Any, functions: "_Functions") -> None:
    for each in walk_expression(expression):
        kind = kind_of(each)
        if _RUN_TIME_NAMES in kind:
            raise _refused("IDENTIFIER can't be used through agents: it makes names of text")
        if kind == "UnresolvedFunction":
            functions.check(_name(each.nameParts()))
        elif kind == "UnresolvedGenerator":
            functions.check(str(each.name().funcName()).lower())


class _Functions:
    """Spark's own list of functions, with the group of each."""

    def __init__(self, session: SparkSession) -> None:
        jvm: Any = session._jvm
        self._registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
        self._identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
        self._known: set[str] = set()

    def check(self, name: str) -> None:
        """One that Spark doesn't have itself is left to Spark, which says so, with names that are like it."""
        if name in self._known or name in FUNCTIONS:
            return
        found = self._registry.lookupFunction(self._identifier(name))
        if found.isDefined() and found.get().getGroup() not in FUNCTION_GROUPS:
            raise _refused(f"{name} can't be used through agents: it reaches beyond its arguments")
        self._known.add(name)

    def check_table_function(self, name: str) -> None:
        if name not in TABLE_FUNCTIONS:
            raise _refused(f"{name} can't be used through agents: it reaches beyond its arguments")


def _name(parts: Any) -> str:
    """The last part of a name: `system.builtin.abs` is abs."""
    return str(parts.last()).lower()


def _refused(what: str) -> StatementError:
    return StatementError(1, 1, what, HINT)
