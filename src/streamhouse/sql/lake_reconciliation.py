"""Reconciliation of lake tables: compares the tables that commands and topic settings require with the stored ones.

Owns        which requests are rejected before anything changes; which tables the settings of topics require, and which
            they no longer do
Leaves      carrying out the plan to `pipelines.topic_tables`, statements to `sql.lake_tables`

Tables, pipelines and topics are JSON objects of agents' responses. No I/O.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from streamhouse.errors import AnotherTable, InvalidConfig, Rejected
from streamhouse.model.table import LAKE, Connector, TableSettings, table_settings
from streamhouse.sql.lake_tables import SETTINGS_OF, LakeTableSpec, differences, is_same, stored_table

JsonObject: TypeAlias = Mapping[str, Any]

FORMATS: Final = tuple(each.value for each in LAKE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDefinitions:
    """The definitions that agents store: tables and pipelines, each by its name."""

    tables: Mapping[str, JsonObject]
    pipelines: Mapping[str, JsonObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTable:
    """The stored definitions of a table's name: the table, and the pipeline that fills it."""

    table: JsonObject | None
    pipeline: JsonObject | None

    @property
    def spec(self) -> LakeTableSpec | None:
        """The table's spec; None where there is no table."""
        return stored_table(self.table, self.pipeline) if self.table else None


def lookup_table(spec: LakeTableSpec, kept: StoredDefinitions) -> KnownTable:
    """Return what is stored under the table's name; raise `Rejected` if it is not a lake table of this topic."""
    if kept.tables.get(spec.topic, {}).get("connector") != Connector.TOPIC:
        raise Rejected(f"no such topic; topic={spec.topic} do=streamhouse topics create {spec.topic}")
    table, cure = kept.tables.get(spec.name), _another_name(spec)
    if table is not None and table["connector"] not in FORMATS:
        raise Rejected(f"the name is taken; name={spec.name} by={table['connector']} do={cure}")
    if table is not None and table.get("columns") is not None:
        raise Rejected(f"it was declared with its columns; table={spec.name} do=change it in SQL, or {cure}")
    return KnownTable(table=table, pipeline=_writer(spec, kept))


def _writer(spec: LakeTableSpec, kept: StoredDefinitions) -> JsonObject | None:
    name = spec.name
    for each in kept.pipelines.values():
        if each["name"] == name and each.get("target") != name:
            raise Rejected(f"a pipeline has this name, and writes elsewhere; name={name} target={each.get('target')}")
        if each["name"] != name and each.get("target") == name:
            raise Rejected(f"another pipeline writes it; table={name} pipeline={each['name']} do={_another_name(spec)}")
    return kept.pipelines.get(name)


def _another_name(spec: LakeTableSpec) -> str:
    return f"set table.name of {spec.settings_of} to another" if spec.settings_of else "choose another name"


def with_stored_values(kept: LakeTableSpec, spec: LakeTableSpec) -> LakeTableSpec:
    """Complete the spec with the values of the stored table; raise `Rejected` if it would be a different table.

    Location and starting position stay as stored unless the spec names others.
    """
    _check_maker(kept, spec)
    spec = replace(spec, location=spec.location or kept.location)
    if changed := differences(kept, spec):
        if not spec.settings_of:
            raise AnotherTable(spec.name, changed)
        raise Rejected(
            f"the table stays as it is; the settings ask for another: {', '.join(map(str, changed))}; table={spec.name}"
            " do=set them back, or set table.name, and table.location if you gave one, to others"
        )
    if kept.topic and spec.starting is not None and spec.starting != (kept.starting or "earliest"):
        raise Rejected(
            f"it has begun already; table={spec.name}"
            f" do=streamhouse pipelines restart {spec.name} --from {spec.starting}"
        )
    return replace(spec, starting=kept.starting) if kept.topic else spec


def _check_maker(kept: LakeTableSpec, spec: LakeTableSpec) -> None:
    """Raise `Rejected` if a setting would change a table made by command, or a command one made by a setting."""
    if kept.settings_of == spec.settings_of:
        return
    if not spec.settings_of:
        raise Rejected(
            f"the settings of its topic made it; table={kept.name} topic={kept.settings_of}"
            f" do=streamhouse topics alter {kept.settings_of} --config table.…=…, or choose another name"
        )
    by = f"the settings of {kept.settings_of}" if kept.settings_of else "a command or in SQL"
    raise Rejected(f"there is such a table, made by {by}; table={spec.name} do={_another_name(spec)}")


# --- settings of topics


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcilePlan:
    """What to create and what to drop.

    `required` are the tables that settings require, by topic; `make` those of them that are new or changed. `refused`
    has the reason why a topic can't have its table. `unwanted` were made by settings that no longer require them;
    `drop` are those of them that were unwanted in the round before, too.
    """

    required: Mapping[str, LakeTableSpec]
    make: tuple[LakeTableSpec, ...] = ()
    unwanted: frozenset[str] = frozenset()
    drop: tuple[str, ...] = ()
    refused: Mapping[str, str]


def desired_table(settings: TableSettings) -> LakeTableSpec:
    return LakeTableSpec(
        name=settings.name,
        topic=settings.topic,
        connector=settings.format.value,
        location=settings.location,
        mode=settings.mode,
        key=settings.key,
        commit_interval=f"{settings.commit_interval_ms}ms",
        settings_of=settings.topic,
        options={"partition_by": settings.partition_by} if settings.partition_by else {},
    )


def reconcile(
    topics: Iterable[JsonObject], kept: StoredDefinitions, *, unwanted_before: frozenset[str] = frozenset()
) -> ReconcilePlan:
    """Plan so that each topic with `table.format` has its table, and a table made by a setting ends with the setting.

    A table is dropped when it was unwanted in the round before, too: agents may learn of a setting a moment late.
    """
    required, refused = _desired(topics)
    unwanted = {
        name: maker
        for name, table in kept.tables.items()
        if (maker := (table.get("options") or {}).get(SETTINGS_OF)) and maker not in refused
        if table["connector"] in FORMATS and not (maker in required and required[maker].name == name)
    }
    make: list[LakeTableSpec] = []
    for topic, spec in required.items():
        try:
            if not _is_stored(spec, kept) and topic not in unwanted.values():  # both may have one location
                make.append(spec)
        except Rejected as error:
            refused[topic] = str(error)
    names = frozenset(unwanted)
    drop = tuple(sorted(names & unwanted_before))
    return ReconcilePlan(required=required, make=tuple(make), unwanted=names, drop=drop, refused=refused)


def _desired(topics: Iterable[JsonObject]) -> tuple[dict[str, LakeTableSpec], dict[str, str]]:
    required: dict[str, LakeTableSpec] = {}
    refused: dict[str, str] = {}
    for topic in topics:
        try:
            settings = table_settings(topic["name"], topic["settings"])
        except InvalidConfig as error:
            refused[topic["name"]] = str(error)
        else:
            required |= {} if settings is None else {settings.topic: desired_table(settings)}
    return required, refused


def _is_stored(spec: LakeTableSpec, kept: StoredDefinitions) -> bool:
    """Raise `Rejected` if the table can't be created."""
    stored = lookup_table(spec, kept).spec
    return stored is not None and is_same(stored, with_stored_values(stored, spec))
