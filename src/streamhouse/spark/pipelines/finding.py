"""Finding: the pipelines in a Python file, read from its syntax tree; nothing of it runs.

Data path   a user's file -> **find_pipelines** -> applying
Owns        which functions are pipelines, and the options that their decorators say
Leaves      running them to `python_code`
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from streamhouse.errors import StatementError
from streamhouse.format.statement_options import PIPELINE_OPTIONS

DECORATOR: Final = "pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`line` is where the function begins."""

    name: str
    into: str
    options: Mapping[str, str]
    line: int


class PythonPipeline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pipeline that is to be validated: `text` is the whole file, `line` where the function begins in it."""

    name: str
    text: str
    line: int = 1
    options: dict[str, str] = {}


def find_pipelines(text: str) -> tuple[Found, ...]:
    """Raises `StatementError` for a file that is no Python, or a decorator that can't be read."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise StatementError(error.lineno or 1, error.offset or 1, f"this is no Python: {error.msg}") from None
    found = [
        _found(node, call)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        for call in node.decorator_list
        if isinstance(call, ast.Call) and _is_ours(call.func)
    ]
    names = [each.name for each in found]
    for each in found:
        if names.count(each.name) > 1:
            raise StatementError(each.line, 1, f"two pipelines have one name: {each.name}")
    return tuple(found)


def _is_ours(node: ast.expr) -> bool:
    """`pipeline`, `spark.pipeline`, `streamhouse.spark.pipeline`."""
    return (isinstance(node, ast.Name) and node.id == DECORATOR) or (
        isinstance(node, ast.Attribute) and node.attr == DECORATOR
    )


def _found(function: ast.FunctionDef, call: ast.Call) -> Found:
    if call.args:
        raise _error(call.args[0], "@pipeline takes names only", '@pipeline(into="topic", …)')
    given: dict[str, str] = {}
    for keyword in call.keywords:
        if keyword.arg is None or not isinstance(keyword.value, ast.Constant):
            raise _error(
                keyword.value,
                "an option of @pipeline must be written out: the file is read, not run",
                'write a text or a number, like trigger="1 second"',
            )
        given[keyword.arg] = _checked(keyword, str(keyword.value.value))
    if "into" not in given:
        raise _error(call, "@pipeline doesn't say where rows go", '@pipeline(into="topic")')
    into, name = given.pop("into"), given.pop("name", function.name)
    return Found(name=name, into=into, options=given, line=function.lineno)


def _checked(keyword: ast.keyword, value: str) -> str:
    name = keyword.arg or ""
    if name in ("into", "name"):
        return value
    if name not in PIPELINE_OPTIONS:
        raise _error(keyword.value, f"a pipeline has no option {name}", f"there are {', '.join(PIPELINE_OPTIONS)}")
    try:
        PIPELINE_OPTIONS[name](value)
    except ValueError as error:
        raise _error(keyword.value, f"{name} can't be {value!r}", f"it may be {error}") from None
    return value


def _error(node: ast.expr, text: str, hint: str) -> StatementError:
    return StatementError(node.lineno, node.col_offset + 1, text, hint)
