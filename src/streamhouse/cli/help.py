"""Help: what `--help` looks like.

Owns        the classes that every command and group is made with: plain text, coloured on a terminal
Leaves      the words to the commands, understanding values to `quick` and typer

Typer's own rich help takes twice as long to import as everything else together; this one is felt as instant.
"""

import re
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from streamhouse.cli.output import coloured
from streamhouse.cli.quick import quicken

MAX_WIDTH: Final = 100
CONTEXT: Final[dict[str, Any]] = {"max_content_width": MAX_WIDTH, "help_option_names": ["--help", "-h"]}

_HEADING: Final = re.compile(r"^(\S.*:)$", re.MULTILINE)
_USAGE: Final = re.compile(r"^Usage:", re.MULTILINE)
_FIRST_COLUMN: Final = re.compile(r"^(  )(-[^\s,]*(?:, -[^\s,]*)*|[a-z-]+)(?=\s{2,}| [A-Z\[<]|$)", re.MULTILINE)
_EXAMPLE: Final = re.compile(r"^(  +)((?:streamhouse|seq|cat|make) .*)$", re.MULTILINE)


def painted(text: str) -> str:
    """Headings bold, names of commands and options cyan, examples green."""
    text = _EXAMPLE.sub(lambda m: m[1] + typer.style(m[2], fg="green"), text)
    text = _FIRST_COLUMN.sub(lambda m: m[1] + typer.style(m[2], fg="cyan"), text)
    text = _HEADING.sub(lambda m: typer.style(m[1], bold=True), text)
    return _USAGE.sub(typer.style("Usage:", bold=True), text)


class HelpfulCommand(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)
        for param in params:
            quicken(param)
        return params

    def get_help(self, ctx: Any) -> str:
        text: str = super().get_help(ctx)
        return painted(text) if coloured() else text


class HelpfulGroup(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)
        for param in params:
            quicken(param)
        return params

    def get_help(self, ctx: Any) -> str:
        text: str = super().get_help(ctx)
        return painted(text) if coloured() else text


def group(about: str) -> typer.Typer:
    """A group of commands that explains itself when it is called without one."""
    return typer.Typer(
        cls=HelpfulGroup, help=about, no_args_is_help=True, rich_markup_mode=None, context_settings=CONTEXT
    )


def described(about: str, *examples: str) -> str:
    """Help text with its examples, which keep their line breaks."""
    return f"{about}\n\n\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples) if examples else about
