"""Lake tables as statements: what `streamhouse tables create` asks for, in SQL.

Owns        the table's definition and the pipeline that fills it, as text
Leaves      parsing it again to `format.statements`, running it to `spark.pipelines`
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from streamhouse.format.lake_options import a_duration_ms

UPSERT: Final = "upsert"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAsTable:
    """A topic as a lake table. `options` are those of the table, besides mode and location."""

    name: str
    topic: str
    connector: str
    location: str
    mode: str = "append"
    key: tuple[str, ...] = ()
    commit_interval: str = "1m"
    dead_letters: str | None = None
    starting: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


def statements_of(table: TopicAsTable) -> str:
    """`CREATE TABLE` and `CREATE PIPELINE`, each with a semicolon."""
    place = {"connector": table.connector, "location": table.location, "mode": table.mode, **table.options}
    pipeline = {"trigger": f"{a_duration_ms(table.commit_interval)} milliseconds"}
    pipeline |= {"key": ", ".join(table.key)} if table.key else {}
    pipeline |= {"dead_letters": table.dead_letters} if table.dead_letters else {}
    pipeline |= {"starting": table.starting} if table.starting else {}
    # Which record is the latest of its key, and which is the end of it, is told by columns about records.
    columns = "*, _key, _partition, _offset, _deleted" if table.mode == UPSERT else "*"
    name = _quoted(table.name)
    return (
        f"CREATE OR REPLACE TABLE {name} WITH ({_options(place)});\n"
        f"CREATE OR REPLACE PIPELINE {name} WITH ({_options(pipeline)}) AS\n"
        f"  INSERT INTO {name} SELECT {columns} FROM STREAM({_quoted(table.topic)});\n"
    )


def _options(given: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = '{value.replace(chr(39), chr(39) * 2)}'" for name, value in given.items())


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
