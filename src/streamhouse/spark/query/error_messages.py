"""Error messages: Spark's errors about a query in short, with line and column in the file.

Data path   an error of Spark's or ours -> **diagnostics_of** -> line, column, text, hint
Owns        texts of common errors; positions in the file from positions in a SELECT
Leaves      raising errors to `resolver` and the processes that run queries

Spark has a position as an index into its text, or as line and pos in its message; the plans that it adds to every
message are left out.
"""

import difflib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark import SparkContext
from pyspark.errors import ParseException, PySparkException

from streamhouse.errors import StatementError, StreamhouseError
from streamhouse.sql.lexer import position

_LINE_POS: Final = re.compile(r"\(?line (\d+),? pos (\d+)\)?")
_CONDITION: Final = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_NOISE: Final = re.compile(r"\s*(?:SQLSTATE: \w+.*|;? ?line \d+ pos \d+.*|== SQL.*)", re.DOTALL)
_OURS: Final = re.compile(r"streamhouse\.errors\.[\w.]+: ([^\n]+)")
_PYTHON: Final = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): ([^\n]+)", re.MULTILINE)
_JAVA: Final = re.compile(r"^(?:Caused by)?: (?:[\w$]+\.)+[\w$]+: ([^\n]+)", re.MULTILINE)
"""A stack trace, as an error of the bridge to the JVM has it: it ends with the root cause."""
_OTHER_WINDOWS: Final = re.compile(
    r"\b(?:TUMBLE|HOP|SESSION|WINDOW\s+(?:TUMBLING|HOPPING|SESSION))\s*\(", re.IGNORECASE
)
"""How other systems write windows."""
_TRACEBACK: Final = "Traceback (most recent call last)"
MAX_TEXT: Final = 300

logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
# PySpark prints every error of a query as JSON besides; the client gets it as a diagnostic.


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlDiagnostic:
    """`line` and `column` are the file's, from 1."""

    line: int
    column: int
    text: str
    hint: str = ""


def diagnostics_of(error: BaseException, file_text: str, select_start: int = 0) -> tuple[SqlDiagnostic, ...]:
    """What is wrong with the query that begins at `select_start` of a file."""
    if isinstance(error, StatementError):
        index = _index(file_text, select_start, error.line, error.column - 1)
        return (_at(file_text, index, error.text, error.hint),)
    if isinstance(error, PySparkException):
        text, hint = describe_error(error)
        if isinstance(error, ParseException) and _OTHER_WINDOWS.search(file_text, select_start):
            hint = "windows are written GROUP BY window(column, '10 seconds'), or session_window(column, '10 minutes')"
        return (_at(file_text, _index_of_error(error, file_text, select_start), text, hint),)
    if isinstance(error, StreamhouseError):
        text, _, hint = str(error).partition(" do=")
        return (_at(file_text, select_start, text.removesuffix(";"), hint),)
    return (_at(file_text, select_start, root_cause(str(error) or type(error).__name__), ""),)


def describe_error(error: PySparkException) -> tuple[str, str]:
    """Spark's error, and what to do about it."""
    message = _message(error)
    condition = error.getCondition() or ""
    parameters: Mapping[str, str] = error.getMessageParameters() or {}
    for known, words in _DESCRIPTIONS.items():
        if condition == known or condition.startswith(f"{known}."):
            return words(parameters, message)
    if _LATE_ROWS in message:
        return "an aggregate, or a join, of rows that change themselves can't be kept up to date on a stream", _FINAL
    return message, _hint_by_text(message)


def root_cause(text: str) -> str:
    """The root cause of a failed task or source: our own message if there is one, without what Spark wraps around
    it."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    causes = _PYTHON.findall(text) or _JAVA.findall(text)
    return _short(_CONDITION.sub("", _NOISE.sub("", str(causes[-1] if causes else text).strip())).strip())


def _message(error: PySparkException) -> str:
    text = str(error.getMessage() or error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    if _TRACEBACK in text:
        return root_cause(text)
    return _short(_CONDITION.sub("", _NOISE.sub("", text.strip())).split(";\n")[0].strip().rstrip("."))


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


# --- positions


def _at(file_text: str, index: int, text: str, hint: str) -> SqlDiagnostic:
    line, column = position(file_text, index)
    return SqlDiagnostic(line=line, column=column, text=text, hint=hint)


def _index_of_error(error: PySparkException, file_text: str, select_start: int) -> int:
    for context in error.getQueryContext() or ():
        if context.fragment():
            return select_start + int(context.startIndex())
    match = _LINE_POS.search(str(error))
    if match:
        return _index(file_text, select_start, int(match[1]), int(match[2]))
    return _mentioned(error, file_text, select_start)


def _mentioned(error: PySparkException, file_text: str, select_start: int) -> int:
    """Index of the expression of an error without a position; of the query, if it is unknown."""
    name = _plain((error.getMessageParameters() or {}).get("expression", "")).strip('"')
    match = re.compile(rf"\b{re.escape(name)}\b").search(file_text, select_start) if name else None
    return match.start() if match else select_start


def _index(file_text: str, start: int, line: int, pos: int) -> int:
    """The index in the file of a line (from 1) and a pos (from 0) in the text that begins at `start`."""
    for _ in range(line - 1):
        newline = file_text.find("\n", start)
        if newline < 0:
            break
        start = newline + 1
    return min(start + pos, len(file_text))


# --- words

_ELSEWHERE: Final = {
    "CHANGES": "leave EMIT CHANGES out: FROM STREAM(topic) is enough",
    "PIPELINE": "a statement ends with ;",
}
"""Hints about syntax of other systems, by the word at which Spark's parser fails."""
_Describe = Callable[[Mapping[str, str], str], tuple[str, str]]


def _column(parameters: Mapping[str, str], message: str) -> tuple[str, str]:
    name = _plain(parameters.get("objectName", ""))
    known = [_plain(each) for each in parameters.get("proposal", "").split(", ") if each]
    close = difflib.get_close_matches(name.split(".")[-1], [each.split(".")[-1] for each in known], n=1)
    if close:
        return f"there is no column {name}", f"did you mean {close[0]}"
    return f"there is no column {name}", f"there are {', '.join(known)}" if known else ""


def _function(parameters: Mapping[str, str], message: str) -> tuple[str, str]:
    name = _plain(parameters.get("routineName", ""))
    close = difflib.get_close_matches(name.lower(), _functions(), n=2)
    return f"there is no function {name}", f"did you mean {' or '.join(close)}" if close else ""


def _functions() -> list[str]:
    jvm: Any = SparkContext._jvm
    if jvm is None:
        return []
    names = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin().listFunction().mkString(",")
    plain = (_plain(name).rpartition(".")[2] for name in str(names).split(","))
    return [name for name in plain if name.isidentifier()]


def _table(parameters: Mapping[str, str], message: str) -> tuple[str, str]:
    return f"there is no table or topic {_plain(parameters.get('relationName', ''))}", "SHOW TABLES lists them"


def _syntax(parameters: Mapping[str, str], message: str) -> tuple[str, str]:
    token = parameters.get("error", "")
    hint = "look at the word before it" if token != "end of input" else "it is not finished"
    return f"syntax error at {token}", _ELSEWHERE.get(token.strip("'").upper(), hint)


def _arguments(parameters: Mapping[str, str], message: str) -> tuple[str, str]:
    name = _plain(parameters.get("functionName", ""))
    expected, actual = parameters.get("expectedNum", "?"), parameters.get("actualNum", "?")
    what = f"{name} takes {expected.strip('[]').replace(', ', ' or ')} arguments, not {actual}"
    return what, f"DESCRIBE FUNCTION {name} lists them"


def _ambiguous(parameters: Mapping[str, str], message: str) -> tuple[str, str]:
    meant = _plain(parameters.get("referenceNames", "").strip("[]")).replace(", ", " or ")
    return f"{_plain(parameters.get('name', ''))} may mean several columns", f"write {meant}"


def _group_by(parameters: Mapping[str, str], message: str) -> tuple[str, str]:
    return "columns stand beside an aggregate without a GROUP BY", "GROUP BY these columns, or GROUP BY ALL"


def _aggregation(parameters: Mapping[str, str], message: str) -> tuple[str, str]:
    name = _plain(parameters.get("expression", "")).strip('"')
    return f"{name} is neither grouped by nor aggregated", f"add {name} to GROUP BY, or write GROUP BY ALL"


def _subquery(parameters: Mapping[str, str], message: str) -> tuple[str, str]:
    return (
        "a correlated subquery is next to an aggregate",
        "JOIN (SELECT id, count(*) AS n … GROUP BY id) b ON a.id = b.id, and GROUP BY b.n;"
        " in a view WITH (lookup = 'on arrival')",
    )


def _mismatch(parameters: Mapping[str, str], message: str) -> tuple[str, str]:
    cause = message.partition("due to data type mismatch: ")[2] or message
    return f"types don't fit in {parameters.get('sqlExpr', '').strip(chr(34))}: {_lowered(cause)}", "cast one of them"


def _output_mode(parameters: Mapping[str, str], message: str) -> tuple[str, str]:
    mode, operation = parameters.get("outputMode", ""), parameters.get("operation", "")
    if "without watermark" in operation:
        return (
            f"output mode {mode} needs a watermark for an aggregate",
            "GROUP BY window(at, '1 minute') and WITH (watermark = 'at 10 seconds'), or WITH (output = 'update')",
        )
    return f"output mode {mode} can't be used with {operation}", "leave the option output out"


def _row_window(parameters: Mapping[str, str], message: str) -> tuple[str, str]:
    name = _ID.sub("", parameters.get("windowFunc", "a window function").lower())
    return (
        f"{name} OVER (…) can't be kept up to date on a stream",
        "group by window(column, '1 minute'), and use max_by or min_by for the first row of a group",
    )


def _not_a_stream(parameters: Mapping[str, str], message: str) -> tuple[str, str]:
    name = _plain(parameters.get("quoted", ""))
    return f"{name} is not a stream", f"write {name} without STREAM"


_DESCRIPTIONS: Final[Mapping[str, _Describe]] = {
    "UNRESOLVED_COLUMN": _column,
    "UNRESOLVED_ROUTINE": _function,
    "TABLE_OR_VIEW_NOT_FOUND": _table,
    "PARSE_SYNTAX_ERROR": _syntax,
    "WRONG_NUM_ARGS": _arguments,
    "AMBIGUOUS_REFERENCE": _ambiguous,
    "MISSING_GROUP_BY": _group_by,
    "MISSING_AGGREGATION": _aggregation,
    "DATATYPE_MISMATCH": _mismatch,
    "SCALAR_SUBQUERY_IS_IN_GROUP_BY_OR_AGGREGATE_FUNCTION": _subquery,
    "STREAMING_OUTPUT_MODE": _output_mode,
    "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING": _row_window,
    "_LEGACY_ERROR_TEMP_1008": _not_a_stream,
}
_ID: Final = re.compile(r"#\d+l?")
_LATE_ROWS: Final = "possible 'correctness' issue due to global watermark"
_FINAL: Final = (
    "GROUP BY window(…) below and above, WITH (watermark = 'at 10 seconds') and without the option output: rows come"
    " once they are final; or CREATE MATERIALIZED VIEW … KEY (column) AS … of tables without STREAM"
)
STREAM_IN_SUBQUERY: Final = "join the streams, or name the table of the subquery without STREAM"
_HINTS: Final = {
    "Sorting is not supported on streaming": "leave ORDER BY and LIMIT out: a stream has no end to sort at",
    "Limits are not supported on streaming": "leave LIMIT out: a stream has no end to count from",
    "not supported without a watermark in the join keys": (
        "give both streams a watermark, and join within a time: AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR"
    ),
    "Distinct aggregations are not supported": "cardinality(collect_set(column)), or approx_count_distinct(column)",
    "Streaming query is not allowed in subquery": STREAM_IN_SUBQUERY,
    "Union between streaming and batch": "read both with STREAM(…)",
    "Cannot have MAP type columns in a set operation": "SELECT the columns and GROUP BY them, in place of DISTINCT",
    '"VARIANT" is not an orderable data type': "GROUP BY to_json(column)",
}


def _hint_by_text(message: str) -> str:
    return next((hint for part, hint in _HINTS.items() if part in message), "")


def _plain(name: str) -> str:
    return name.replace("`", "")


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
