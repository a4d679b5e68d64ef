"""Catalog: every name that SQL knows, with its columns.

Data path   a name -> **catalog** -> agents (definitions, schemas, samples) -> a table with columns
Owns        where columns come from (declared, registered, inferred), and how long an entry is valid
Leaves      requests to agents and types of JSON to `schema_inference`, DataFrames to `resolver`
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from streamhouse.clock import Clock, SystemClock
from streamhouse.errors import AccessDenied
from streamhouse.model.table import Column, Connector, Table
from streamhouse.spark.agents.address import AgentAddress
from streamhouse.spark.connectors.topic import JSON, RAW, REGISTRY, metadata_columns
from streamhouse.spark.connectors.topic_writer import topic_of
from streamhouse.spark.query.schema_inference import AgentCatalogBackend, infer, is_json, is_text, objects_of

TABLES_TTL_S: Final = 2.0
COLUMNS_TTL_S: Final = 60.0
"""How long inferred and registered columns are cached; a changed definition is seen with the tables."""
MAX_ENTRIES: Final = 1_000
REGISTERED: Final = "registered"
EMPTY_TOPIC: Final = "no records yet"
"""The origin of undeclared columns of an empty topic."""


class CatalogBackend(Protocol):
    """Where a catalog gets tables, columns and samples from; `schema_inference.AgentCatalogBackend` sends requests to
    agents."""

    def tables(self) -> Sequence[Table]: ...

    def fields(self, topic: str) -> tuple[Column, ...] | None: ...

    def sample(self, topic: str) -> list[bytes | None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """A table with its columns, and their origin as text; `defined` is the table as agents define it."""

    defined: Table
    table: Table
    origin: str
    until_s: float


class Catalog:
    """`agents` are `host:port`, with commas between, and who one is there."""

    def __init__(
        self, agents: AgentAddress, *, backend: CatalogBackend | None = None, clock: Clock | None = None
    ) -> None:
        self.agents = agents
        self._backend, self._clock = backend or AgentCatalogBackend(agents), clock or SystemClock()
        self._tables: dict[str, Table] = {}
        self._tables_until_s: float | None = None
        self._entries: dict[str, CatalogEntry] = {}

    def __repr__(self) -> str:
        return f"<Catalog {self.agents} tables={len(self._tables)} entries={len(self._entries)}>"

    def names(self) -> tuple[str, ...]:
        return tuple(self._known())

    @property
    def kept(self) -> tuple[str, ...]:
        """Names that are added locally, not from agents."""
        return ()

    def find(self, name: str, *, anew: bool = False) -> Table | None:
        """A table with its columns; the case of the name matters only if several names differ in it. None if unknown.

        `columns` stays None if only the source itself has them: a file, a table of a database. `anew`: as the latest
        schema of the registry has them now; otherwise they may be as old as COLUMNS_TTL_S.
        """
        entry = self._resolved(name, anew=anew)
        return entry.table if entry is not None else None

    def find_target(self, name: str) -> Table | None:
        """A table to write to: without columns that one would have to read records for, and may not."""
        try:
            return self.find(name)
        except AccessDenied:
            return _match_name(name, self._known())

    def origin(self, name: str) -> str:
        """Where a table's columns come from: declared, registered, `inferred from 812 JSON records`."""
        entry = self._resolved(name)
        return entry.origin if entry is not None else ""

    def suggestions(self, name: str) -> tuple[str, ...]:
        """Similar names, for suggestions."""
        lower = {each.lower(): each for each in self.names()}
        close = difflib.get_close_matches(name.lower(), lower, n=3)
        return tuple(lower[each] for each in close)

    def invalidate(self) -> None:
        """Drop all cached entries: something was created, changed or dropped."""
        self._tables_until_s = None
        self._entries.clear()

    def refresh(self) -> None:
        """Fetch the list of tables; cached columns of unchanged tables stay."""
        self._known(anew=True)

    def _resolved(self, name: str, *, anew: bool = False) -> CatalogEntry | None:
        defined = _match_name(name, self._known()) or _match_name(name, self._known(anew=True))
        if defined is None:
            return None
        now_s = self._clock.monotonic()
        entry = self._entries.get(defined.name)
        is_old = entry is None or entry.defined != defined or entry.until_s <= now_s
        if entry is None or is_old or (anew and self._is_registered_anew(entry)):
            table, origin = self._with_columns(defined)
            ttl_s = COLUMNS_TTL_S if table.columns else TABLES_TTL_S
            entry = CatalogEntry(defined=defined, table=table, origin=origin, until_s=now_s + ttl_s)
            if len(self._entries) >= MAX_ENTRIES:
                self._entries.clear()
            self._entries[defined.name] = entry
        return entry

    def _is_registered_anew(self, entry: CatalogEntry) -> bool:
        """Whether the registry's columns differ from the cached ones."""
        defined = entry.defined
        if defined.connector is not Connector.TOPIC or not _may_be_registered(defined):
            return False
        known = entry.table.columns if entry.origin == REGISTERED else None
        return self._backend.fields(topic_of(defined)) != known

    def _known(self, *, anew: bool = False) -> dict[str, Table]:
        now_s = self._clock.monotonic()
        if anew or self._tables_until_s is None or self._tables_until_s <= now_s:
            self._tables = {table.name: table for table in self._backend.tables()}
            self._tables_until_s = now_s + TABLES_TTL_S
        return self._tables

    def _with_columns(self, table: Table) -> tuple[Table, str]:
        if table.connector is not Connector.TOPIC:
            return table, "declared" if table.columns else ""
        fmt = table.options.get("format")
        if table.columns is not None:
            return _as(table, fmt or JSON, table.columns), "declared"
        if _may_be_registered(table) and (fields := self._backend.fields(topic_of(table))) is not None:
            return _as(table, REGISTRY, fields), REGISTERED
        return columns_of(table, self._backend.sample(topic_of(table)), fmt)


class OverlayCatalog(Catalog):
    """A catalog with additional tables: those of a file that is being validated."""

    def __init__(self, base: Catalog) -> None:
        super().__init__(base.agents, backend=base._backend, clock=base._clock)
        self._base, self._more = base, dict[str, Table]()

    @property
    def kept(self) -> tuple[str, ...]:
        return tuple(self._more)

    def add(self, table: Table) -> None:
        self._more[table.name] = table

    def _known(self, *, anew: bool = False) -> dict[str, Table]:
        return {**self._base._known(anew=anew), **self._more}


def columns_of(table: Table, sample: Sequence[bytes | None], fmt: str | None) -> tuple[Table, str]:
    """Infer undeclared columns of a topic from a sample of its values."""
    if fmt == JSON or (fmt is None and is_json(sample)):
        number = len(objects_of(sample))
        return _as(table, JSON, infer(sample)), f"inferred from {number:,} JSON record{'s' if number != 1 else ''}"
    kind = "STRING" if is_text(sample) else "BINARY"
    origin = "as they are" if sample else EMPTY_TOPIC
    return _as(table, RAW, (Column(name="value", type=kind),)), origin


def metadata_columns_of(table: Table) -> tuple[Column, ...]:
    """The metadata columns of a topic, which a query reads only by name."""
    if table.connector is not Connector.TOPIC:
        return ()
    own = {column.name for column in table.columns or ()}
    return tuple(column for column in metadata_columns(table) if column.name not in own)


def _as(table: Table, fmt: str, columns: tuple[Column, ...]) -> Table:
    return replace(table, columns=columns, options={**table.options, "format": fmt})


def _may_be_registered(table: Table) -> bool:
    return table.columns is None and table.options.get("format") in (None, REGISTRY)


def _match_name(name: str, tables: dict[str, Table]) -> Table | None:
    if name in tables:
        return tables[name]
    alike = [table for known, table in tables.items() if known.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def topic_columns(agents: str, topic: str) -> tuple[str, ...] | None:
    """The column names of a topic: declared, registered or inferred; None for an empty topic. Blocks."""
    catalog = Catalog(agents)
    table = catalog.find(topic)
    if table is None or not table.columns or catalog.origin(topic) == EMPTY_TOPIC:
        return None
    return tuple(column.name for column in table.columns)
