"""Lake deciding: what is to be done so that agents keep the lake tables that somebody wants.

Owns        what is refused before anything changes; which tables the settings of topics ask for, and which they don't
            ask for any more
Leaves      doing it to `pipelines.topic_tables`, statements to `sql.lake_tables`

Tables, pipelines and topics are as agents tell them. Decides; touches nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from streamhouse.errors import AnotherTable, InvalidConfig, Rejected
from streamhouse.model.table import LAKE, Connector, TableSettings, table_settings
from streamhouse.sql.lake_tables import SETTINGS_OF, LakeTableSpec, differences, is_same, stored_table

Told: TypeAlias = Mapping[str, Any]

FORMATS: Final = tuple(each.value for each in LAKE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDefinitions:
    """What agents keep: tables and pipelines, each by its name."""

    tables: Mapping[str, Told]
    pipelines: Mapping[str, Told]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTable:
    """What agents keep by a table's name: its definition, and the pipeline that fills it."""

    table: Told | None
    pipeline: Told | None

    @property
    def as_asked(self) -> LakeTableSpec | None:
        """As it would be asked for; None where there is no table."""
        return stored_table(self.table, self.pipeline) if self.table else None


def lookup_table(wanted: LakeTableSpec, kept: StoredDefinitions) -> KnownTable:
    """Raises `Rejected` where the name means something else."""
    if kept.tables.get(wanted.topic, {}).get("connector") != Connector.TOPIC:
        raise Rejected(f"no such topic; topic={wanted.topic} do=streamhouse topics create {wanted.topic}")
    table, cure = kept.tables.get(wanted.name), _another_name(wanted)
    if table is not None and table["connector"] not in FORMATS:
        raise Rejected(f"the name is taken; name={wanted.name} by={table['connector']} do={cure}")
    if table is not None and table.get("columns") is not None:
        raise Rejected(f"it was declared with its columns; table={wanted.name} do=change it in SQL, or {cure}")
    return KnownTable(table=table, pipeline=_writer(wanted, kept))


def _writer(wanted: LakeTableSpec, kept: StoredDefinitions) -> Told | None:
    name = wanted.name
    for each in kept.pipelines.values():
        if each["name"] == name and each.get("target") != name:
            raise Rejected(f"a pipeline has this name, and writes elsewhere; name={name} target={each.get('target')}")
        if each["name"] != name and each.get("target") == name:
            raise Rejected(
                f"another pipeline writes it; table={name} pipeline={each['name']} do={_another_name(wanted)}"
            )
    return kept.pipelines.get(name)


def _another_name(wanted: LakeTableSpec) -> str:
    return f"set table.name of {wanted.settings_of} to another" if wanted.settings_of else "choose another name"


def with_stored_values(kept: LakeTableSpec, wanted: LakeTableSpec) -> LakeTableSpec:
    """What is wanted of a table that is there; raises `Rejected` where it would have to be another one.

    A table stays where it is, and goes on where it is, unless somebody says otherwise.
    """
    _check_maker(kept, wanted)
    wanted = replace(wanted, location=wanted.location or kept.location)
    if found := differences(kept, wanted):
        if not wanted.settings_of:
            raise AnotherTable(wanted.name, found)
        raise Rejected(
            f"the table stays as it is; the settings ask for another: {', '.join(map(str, found))}; table={wanted.name}"
            " do=set them back, or set table.name, and table.location if you gave one, to others"
        )
    if kept.topic and wanted.starting is not None and wanted.starting != (kept.starting or "earliest"):
        raise Rejected(
            f"it has begun already; table={wanted.name}"
            f" do=streamhouse pipelines restart {wanted.name} --from {wanted.starting}"
        )
    return replace(wanted, starting=kept.starting) if kept.topic else wanted


def _check_maker(kept: LakeTableSpec, wanted: LakeTableSpec) -> None:
    """What a setting made is changed and ended by settings; what somebody made, by nobody else."""
    if kept.settings_of == wanted.settings_of:
        return
    if not wanted.settings_of:
        raise Rejected(
            f"the settings of its topic made it; table={kept.name} topic={kept.settings_of}"
            f" do=streamhouse topics alter {kept.settings_of} --config table.…=…, or choose another name"
        )
    by = f"the settings of {kept.settings_of}" if kept.settings_of else "somebody, by command or in SQL"
    raise Rejected(f"there is such a table, made by {by}; table={wanted.name} do={_another_name(wanted)}")


# --- settings of topics


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcilePlan:
    """`asked`: what settings ask for, by topic. `make`: of that, what is new or changed. `refused`: why a topic can't
    have what it asks for, by topic. `unwanted`: made by settings that don't ask for it now; `drop`: nor did before.
    """

    asked: Mapping[str, LakeTableSpec]
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
    topics: Iterable[Told], kept: StoredDefinitions, *, unwanted_before: frozenset[str] = frozenset()
) -> ReconcilePlan:
    """What to do so that topics with `table.format` are tables, and those that a setting made are ended without it.

    A table is dropped when it was unwanted the last time, too: agents may be a moment late to hear of a setting.
    """
    asked, refused = _desired(topics)
    unwanted = {
        name: maker
        for name, table in kept.tables.items()
        if (maker := (table.get("options") or {}).get(SETTINGS_OF)) and maker not in refused
        if table["connector"] in FORMATS and not (maker in asked and asked[maker].name == name)
    }
    make: list[LakeTableSpec] = []
    for topic, wanted in asked.items():
        try:
            if not _is_stored(wanted, kept) and topic not in unwanted.values():  # both may be in one place
                make.append(wanted)
        except Rejected as error:
            refused[topic] = str(error)
    found = frozenset(unwanted)
    drop = tuple(sorted(found & unwanted_before))
    return ReconcilePlan(asked=asked, make=tuple(make), unwanted=found, drop=drop, refused=refused)


def _desired(topics: Iterable[Told]) -> tuple[dict[str, LakeTableSpec], dict[str, str]]:
    asked: dict[str, LakeTableSpec] = {}
    refused: dict[str, str] = {}
    for topic in topics:
        try:
            settings = table_settings(topic["name"], topic["settings"])
        except InvalidConfig as error:
            refused[topic["name"]] = str(error)
        else:
            asked |= {} if settings is None else {settings.topic: desired_table(settings)}
    return asked, refused


def _is_stored(wanted: LakeTableSpec, kept: StoredDefinitions) -> bool:
    """Raises `Rejected` where it can't be had."""
    there = lookup_table(wanted, kept).as_asked
    return there is not None and is_same(there, with_stored_values(there, wanted))
