"""Typer classes of all commands: help as plain text, and parsing of simple values without pydantic.

Typer imports pydantic to parse any value, even of an option that was not given, and rich to print help. Both imports
take longer than all others together. `FastCoercion` parses strings, whole numbers, choices, paths and lists of them;
values that it can't parse, and all invalid ones, are left to typer. If typer's internals are not as expected, nothing
is changed and commands start more slowly.
"""

import re
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from streamhouse.cli.output import use_color

UNPARSED: Final = object()
_PATH_CHECKS: Final = ("exists", "resolve_path", "writable")


def use_fast_parsing(param: Any) -> None:
    """Put our own way before typer's, once."""
    if getattr(param, "_runtime_param", param) is None and hasattr(param, "type_descriptor"):
        param._runtime_param = FastCoercion()


class FastCoercion:
    """Stands where typer keeps its own, and steps aside for it."""

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        descriptor = param.type_descriptor
        found = parse_value(value, descriptor.annotation, param.default, descriptor.parameter_info)
        if found is not UNPARSED:
            return found
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def parse_value(value: Any, annotation: Any, default: Any, info: Any) -> Any:
    """The value that a command gets, or `UNPARSED`."""
    is_list = get_origin(annotation) is list
    if value is None:
        return () if is_list else None
    if default is not None and value is default:
        return value
    if not is_list:
        return _parse_one(value, annotation, info)
    if not isinstance(value, list | tuple):
        return UNPARSED
    found = [_parse_one(one, get_args(annotation)[0], info) for one in value]
    return UNPARSED if any(one is UNPARSED for one in found) else found


def _parse_one(value: Any, annotation: Any, info: Any) -> Any:
    if not isinstance(value, str) or getattr(info, "parser", None) or getattr(info, "click_type", None):
        return UNPARSED
    if annotation is str:
        return value
    if annotation is int:
        return _whole_number(value, info)
    if get_origin(annotation) is Literal:
        return value if value in get_args(annotation) else UNPARSED
    if annotation is Path:
        return UNPARSED if any(getattr(info, ask, False) for ask in _PATH_CHECKS) else Path(value)
    return UNPARSED


def _whole_number(value: str, info: Any) -> Any:
    if not (value.isascii() and value.isdigit()):
        return UNPARSED
    number = int(value)
    low, high = getattr(info, "min", None), getattr(info, "max", None)
    fits = (low is None or number >= low) and (high is None or number <= high)
    return number if fits else UNPARSED


MAX_WIDTH: Final = 100
CONTEXT: Final[dict[str, Any]] = {"max_content_width": MAX_WIDTH, "help_option_names": ["--help", "-h"]}

_HEADING: Final = re.compile(r"^(\S.*:)$", re.MULTILINE)
_USAGE: Final = re.compile(r"^Usage:", re.MULTILINE)
_FIRST_COLUMN: Final = re.compile(r"^(  )(-[^\s,]*(?:, -[^\s,]*)*|[a-z-]+)(?=\s{2,}| [A-Z\[<]|$)", re.MULTILINE)
_EXAMPLE: Final = re.compile(r"^(  +)((?:streamhouse|seq|cat|make) .*)$", re.MULTILINE)


def colorize(text: str) -> str:
    """Headings bold, names of commands and options cyan, examples green."""
    text = _EXAMPLE.sub(lambda m: m[1] + typer.style(m[2], fg="green"), text)
    text = _FIRST_COLUMN.sub(lambda m: m[1] + typer.style(m[2], fg="cyan"), text)
    text = _HEADING.sub(lambda m: typer.style(m[1], bold=True), text)
    return _USAGE.sub(typer.style("Usage:", bold=True), text)


class Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)
        for param in params:
            use_fast_parsing(param)
        return params

    def get_help(self, ctx: Any) -> str:
        text: str = super().get_help(ctx)
        return colorize(text) if use_color() else text


class CommandGroup(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)
        for param in params:
            use_fast_parsing(param)
        return params

    def get_help(self, ctx: Any) -> str:
        text: str = super().get_help(ctx)
        return colorize(text) if use_color() else text


def command_group(about: str) -> typer.Typer:
    """A group of commands that explains itself when it is called without one."""
    return typer.Typer(
        cls=CommandGroup, help=about, no_args_is_help=True, rich_markup_mode=None, context_settings=CONTEXT
    )


def help_text(about: str, *examples: str) -> str:
    """Help text with its examples, which keep their line breaks."""
    return f"{about}\n\n\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples) if examples else about
