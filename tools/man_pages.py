"""Man pages, made from the command line: `python -m tools.man_pages`, part of `make docs`.

One page per command or group of commands, in docs/man. Wheels install them below share/man of the environment, where
`man` looks for commands of the path.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from typer.main import get_command

from streamhouse import __version__
from streamhouse.cli.main import app

FOLDER: Final = Path(__file__).parents[1] / "docs" / "man"
NAME: Final = "streamhouse"
ABOUT: Final = "event streaming with the Kafka protocol and records in object storage"
_ESCAPED: Final = {"\\": "\\e", "-": "\\-"}
_EXAMPLES: Final = re.compile(r"\n*\x08\nExamples:\n", re.MULTILINE)


def escape(text: str) -> str:
    """Text as roff shows it: no escapes, and no line that it takes for a request."""
    escaped = "".join(_ESCAPED.get(char) or (char if char.isascii() else f"\\[u{ord(char):04X}]") for char in text)
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in escaped.split("\n"))


def render_pages() -> Mapping[str, str]:
    """Name of a file -> its text."""
    root: Any = get_command(app)
    context = root.context_class(root, info_name=NAME)
    pages = {f"{NAME}.1": "\n".join(_root_page(root, context)) + "\n"}
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        pages[f"{NAME}-{name}.1"] = "\n".join(_page(command, name, context)) + "\n"
    return pages


def _title(name: str, about: str) -> Iterator[str]:
    yield f'.TH "{escape(name.upper())}" "1" "" "{NAME} {__version__}" "StreamHouse"'
    yield ".SH NAME"
    yield f"{escape(name)} \\- {escape(about.rstrip('.'))}"


def _root_page(root: Any, context: Any) -> Iterator[str]:
    text, examples = _divided(root.help)
    yield from _title(NAME, ABOUT)
    yield from _synopsis(root, context)
    yield from _section("DESCRIPTION", text)
    yield from _options(root, context)
    yield ".SH COMMANDS"
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        yield from (".TP", f".BR {escape(NAME)}\\-{escape(name)} (1)", escape(command.get_short_help_str(limit=200)))
    yield from _examples(examples)
    yield from _section("EXIT STATUS", "0: done. 1: it failed. 2: wrong usage or settings.")


def _page(command: Any, name: str, parent: Any) -> Iterator[str]:
    context = command.context_class(command, info_name=name, parent=parent)
    text, examples = _divided(command.help)
    yield from _title(f"{NAME}-{name}", command.get_short_help_str(limit=200))
    yield from _synopsis(command, context)
    yield from _section("DESCRIPTION", text)
    yield from _options(command, context)
    yield from _examples(examples)
    for child in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from _child(command.get_command(context, child), child, context)
    yield from (".SH SEE ALSO", f".BR {NAME} (1)")


def _child(command: Any, name: str, parent: Any) -> Iterator[str]:
    context = command.context_class(command, info_name=name, parent=parent)
    text, examples = _divided(command.help)
    yield f".SH {escape(context.command_path).upper()}"
    yield f".B {escape(' '.join(_usage(command, context)))}"
    yield ".PP"
    yield text
    yield from _option_list(command, context)
    if examples:
        yield from (".PP", "Examples:", ".PP", ".nf", escape(examples), ".fi")


def _synopsis(command: Any, context: Any) -> Iterator[str]:
    yield from (".SH SYNOPSIS", f".B {escape(' '.join(_usage(command, context)))}")


def _usage(command: Any, context: Any) -> list[str]:
    return [context.command_path, *command.collect_usage_pieces(context)]


def _section(title: str, text: str) -> Iterator[str]:
    if text:
        yield from (f".SH {title}", text)


def _examples(examples: str) -> Iterator[str]:
    if examples:
        yield from (".SH EXAMPLES", ".nf", escape(examples), ".fi")


def _options(command: Any, context: Any) -> Iterator[str]:
    listed = list(_option_list(command, context))
    if listed:
        yield from (".SH OPTIONS", *listed)


def _option_list(command: Any, context: Any) -> Iterator[str]:
    for param in command.get_params(context):
        record = param.get_help_record(context)
        if record is not None and param.param_type_name == "option":
            yield from (".TP", f".B {escape(record[0])}", escape(" ".join(record[1].split())))


def _divided(text: str | None) -> tuple[str, str]:
    """The description in roff, a paragraph per blank line, and the examples as they are."""
    about, _, examples = _EXAMPLES.sub("\0", text or "").partition("\0")
    paragraphs = [" ".join(part.replace("\x08", "").split()) for part in about.split("\n\n")]
    return "\n.PP\n".join(escape(each) for each in paragraphs if each), "\n".join(
        line.strip() for line in examples.splitlines()
    )


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    pages = render_pages()
    for old in FOLDER.glob("*.1"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (FOLDER / name).write_text(text)
    print(f"{len(pages)} pages in {FOLDER}")


if __name__ == "__main__":
    main()
