"""Changes: what becomes of a pipeline when somebody wishes something of it. Decides; touches nothing.

Data path   pipelines -> **changes** -> pipelines
Owns        when a definition is the same, when it keeps its place, what begins anew
Leaves      reading and writing to `pipelines`, what a shape says to `model.pipeline`
"""

import json
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from streamhouse.errors import InvalidDefinition, PlaceLost
from streamhouse.format.tokens import without_layout
from streamhouse.model.pipeline import Definition, KeptPipeline, Kind, Phase, Pipeline, Status, Wish, loses_place


class Outcome(StrEnum):
    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A definition as it should be; `fresh`: it may begin anew, at `starting`."""

    definition: Definition
    starting: str | None = None
    fresh: bool = False


def decide_definition(
    before: Pipeline | None, wanted: Wanted, *, query_id: str, has_run: bool = True
) -> tuple[Outcome, Pipeline]:
    """The pipeline as it is kept then; raises `PlaceLost` for what can't go on where it stands.

    A view that has not run has no rows to lose: it begins anew, where it was to begin.
    """
    if before is None:
        return Outcome.CREATED, _first(wanted, query_id)
    definition = _with_known(before.definition, wanted.definition)
    is_same_text = _has_same_text(before.definition, definition)
    lost = loses_place(before.definition.shape, definition.shape, is_same_text=is_same_text)
    if lost is None and _is_same(before.definition, definition):
        return Outcome.UNCHANGED, replace(before, definition=definition)
    changed = replace(before, definition=definition, revision=before.revision + 1)
    if wanted.fresh:
        return Outcome.CHANGED, _anew(changed, wanted.starting, query_id)
    if lost is not None and definition.kind is Kind.VIEW and not has_run:
        return Outcome.CHANGED, _anew(changed, before.starting, query_id)
    if lost is not None:
        raise PlaceLost(definition.name, why=lost)
    return Outcome.CHANGED, changed


def decide_restart(before: Pipeline, starting: str | None, *, query_id: str) -> Pipeline:
    """With a place to start from: a new beginning. Without: the same place, tried again."""
    again = replace(before, revision=before.revision + 1, wish=Wish.RUN)
    return again if starting is None else _anew(again, starting, query_id)


def check_starting(starting: str) -> None:
    """Raise `InvalidDefinition` unless it is a place: `earliest`, `latest`, a time in ISO 8601, or offsets as JSON."""
    if starting in ("earliest", "latest") or _is_time(starting) or _is_offsets(starting):
        return
    raise InvalidDefinition(
        f"no place to start from; given={starting[:100]!r} "
        'do=say earliest, latest, a time like 2026-01-31T12:00:00Z, or offsets like {"orders": {"0": 12}}'
    )


def shown_status(kept: KeptPipeline) -> Status:
    """What to tell of it: nobody runs what nobody owns, whatever its last owner said."""
    if kept.owner is not None or kept.status.phase is Phase.DONE:
        return kept.status
    phase = Phase.PAUSED if kept.pipeline.wish is Wish.PAUSE else Phase.WAITING
    return replace(kept.status, phase=phase, input_rate=None, processed_rate=None)


def _first(wanted: Wanted, query_id: str) -> Pipeline:
    return Pipeline(
        definition=wanted.definition,
        revision=1,
        generation=1,
        query_id=query_id,
        starting=wanted.starting,
        wish=Wish.RUN,
        created_at_ms=0,
        changed_at_ms=0,
    )


def _anew(before: Pipeline, starting: str | None, query_id: str) -> Pipeline:
    return replace(before, generation=before.generation + 1, query_id=query_id, starting=starting)


def _is_same(old: Definition, new: Definition) -> bool:
    """Columns and shape follow from the text and from what it reads: to know them better is no change."""
    return replace(old, columns=None, shape=None) == replace(new, columns=None, shape=None)


def _has_same_text(old: Definition, new: Definition) -> bool:
    """Comments and layout aside; in Python the layout counts."""
    if old.text == new.text or Kind.PYTHON in (old.kind, new.kind):
        return old.text == new.text
    return without_layout(old.text) == without_layout(new.text)


def _with_known(old: Definition, new: Definition) -> Definition:
    """What nobody has looked at this time is as it was, while the text is the same."""
    if not _is_same(old, new):
        return new
    return replace(
        new,
        columns=old.columns if new.columns is None else new.columns,
        shape=old.shape if new.shape is None else new.shape,
    )


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_offsets(text: str) -> bool:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and all(
        isinstance(offsets, dict) and all(key.isdecimal() and type(at) is int for key, at in offsets.items())
        for offsets in told.values()
    )
