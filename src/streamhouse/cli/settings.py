"""Settings: `streamhouse config show` prints every setting, where its value comes from and what it means.

Owns        the table and the JSON
Leaves      reading and explaining to `config`
"""

import os
from collections.abc import Iterable
from dataclasses import asdict
from itertools import groupby

from streamhouse.cli.help import HelpfulCommand, described, group
from streamhouse.cli.options import AsJson, ConfigFile
from streamhouse.cli.output import Column, console, on_terminal, print_json, print_table, say
from streamhouse.cli.words import size
from streamhouse.config import Explained, explain_settings

app = group("Show the settings.")


@app.command(
    "show",
    cls=HelpfulCommand,
    help=described(
        "Show every setting: its value, where that comes from, and what it means. Flags of `streamhouse up` come "
        "first, then variables (STREAMHOUSE_WAL_FSYNC), then streamhouse.toml ([wal] fsync), then defaults.",
        "streamhouse config show",
        "STREAMHOUSE_FLUSH_AGE_S=5s streamhouse config show --json",
    ),
)
def show(config: ConfigFile = None, as_json: AsJson = False) -> None:
    explained = explain_settings({}, os.environ, config)
    if as_json:
        print_json([asdict(setting) for setting in explained])
    elif on_terminal():
        _show_sections(explained)
    else:
        columns = [Column("setting"), Column("value"), Column("source"), Column("about")]
        print_table(columns, [[s.name, _value(s), _source(s), s.about] for s in explained])


def _show_sections(explained: Iterable[Explained]) -> None:
    from rich.table import Table
    from rich.text import Text

    screen = console()
    name_width = 28
    for section, settings in groupby(explained, key=lambda setting: setting.name.partition(".")[0]):
        table = Table.grid(padding=(0, 2), expand=False)
        table.add_column(style="cyan", width=name_width)
        table.add_column(ratio=1, overflow="fold")
        for setting in settings:
            value = Text(_value(setting), style="bold" if setting.source != "default" else "")
            if setting.source != "default":
                value.append(f"  from {_source(setting)}", style="yellow")
            table.add_row(f"  {setting.name.partition('.')[2]}", value)
            table.add_row("", Text(setting.about, style="dim"))
        say(f"[{section}]", bold=True)
        screen.print(table)
        say()
    say("Set with STREAMHOUSE_<SECTION>_<FIELD>, or in streamhouse.toml below [section].", dim=True)


def _value(setting: Explained) -> str:
    """Bytes also in the unit that people think in."""
    if isinstance(setting.value, bool):
        return str(setting.value).lower()
    if isinstance(setting.value, int) and setting.name.endswith("_bytes"):
        return f"{setting.value} ({size(setting.value)})"
    if isinstance(setting.value, float):
        return f"{setting.value:g}"
    return str(setting.value) if setting.value != "" else "-"


def _source(setting: Explained) -> str:
    return setting.where or "default"
