"""Typer classes of all commands: help as plain text, parsing of simple values without pydantic, old option names.

Typer imports pydantic to parse any value, even of an option that was not given, and rich to print help. Both imports
take longer than all others together. `SimpleCoercion` parses strings, integers, choices, paths and lists of them;
typer parses the values that it can't parse, and reports all invalid ones. A typer that does not call
`get_runtime_param` parses everything itself, and commands start more slowly.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from streamhouse.cli.login import login_options
from streamhouse.cli.output import use_color

UNPARSED: Final = object()
_PATH_CHECKS: Final = ("exists", "resolve_path", "writable")

ADDRESSES: Final = "HOST:PORT,…"
"""The metavar of `--agents`."""
OLD_NAMES: Final[Mapping[str, str]] = {"--http": "--agents"}
"""Names that options with the metavar `ADDRESSES` had before; they still work and `--help` does not show them."""


class SimpleCoercion:
    """Parses simple values; builds and calls typer's own coercion for all others."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        descriptor = param.type_descriptor
        parsed = parse_value(value, descriptor.annotation, param.default, descriptor.parameter_info)
        return self._build().coerce(value, param=param, ctx=ctx) if parsed is UNPARSED else parsed


class SimpleOption(TyperOption):
    def get_runtime_param(self) -> Any:
        return SimpleCoercion(super().get_runtime_param)


class SimpleArgument(TyperArgument):
    def get_runtime_param(self) -> Any:
        return SimpleCoercion(super().get_runtime_param)


_SIMPLE: Final[Mapping[type, type]] = {TyperOption: SimpleOption, TyperArgument: SimpleArgument}


@cache
def with_simple_coercion(param: Any) -> Any:
    """Return a copy of a typer parameter that parses simple values itself, always the same one; typer compares them."""
    subclass = _SIMPLE.get(type(param))
    if subclass is None:
        return param
    copy: Any = object.__new__(subclass)
    vars(copy).update(vars(param))
    return copy


def parse_value(value: Any, annotation: Any, default: Any, info: Any) -> Any:
    """Return the value that a command gets, or `UNPARSED`."""
    is_list = get_origin(annotation) is list
    if value is None:
        return () if is_list else None
    if default is not None and value is default:
        return value
    if not is_list:
        return _parse_one(value, annotation, info)
    if not isinstance(value, list | tuple):
        return UNPARSED
    parsed = [_parse_one(one, get_args(annotation)[0], info) for one in value]
    return UNPARSED if any(one is UNPARSED for one in parsed) else parsed


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
        return UNPARSED if any(getattr(info, check, False) for check in _PATH_CHECKS) else Path(value)
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
    """A command. If it takes `--agents`, it also takes the options of `login`."""

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)
        if self._talks_to_agents:
            params[-1:-1] = login_options({flag for param in params for flag in param.opts})  # before --help
        return [with_simple_coercion(param) for param in params]

    @property
    def _talks_to_agents(self) -> bool:
        return any(param.metavar == ADDRESSES for param in self.params)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest: list[str] = super().parse_args(ctx, self._with_current_names(args))
        return rest

    def _with_current_names(self, args: list[str]) -> list[str]:
        if self.ignore_unknown_options or not self._talks_to_agents:
            return args
        end = args.index("--") if "--" in args else len(args)
        return [*map(_current_name, args[:end]), *args[end:]]

    def get_help(self, ctx: Any) -> str:
        text: str = super().get_help(ctx)
        return colorize(text) if use_color() else text


def _current_name(arg: str) -> str:
    name, equals, value = arg.partition("=")
    return f"{OLD_NAMES.get(name, name)}{equals}{value}"


class CommandGroup(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return [with_simple_coercion(param) for param in super().get_params(ctx)]

    def get_help(self, ctx: Any) -> str:
        text: str = super().get_help(ctx)
        return colorize(text) if use_color() else text


def command_group(about: str) -> typer.Typer:
    """A group of commands that prints its help when it is called without a command."""
    return typer.Typer(
        cls=CommandGroup, help=about, no_args_is_help=True, rich_markup_mode=None, context_settings=CONTEXT
    )


def help_text(about: str, *examples: str) -> str:
    """Help text with its examples, which keep their line breaks."""
    return f"{about}\n\n\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples) if examples else about
