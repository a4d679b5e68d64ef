"""Changes of a pipeline: apply, pause, resume, restart, delete."""

from dataclasses import replace

import pytest

from streamhouse.broker.pipelines.pipelines import (
    Outcome,
    PipelineRequest,
    check_starting,
    decide_definition,
    decide_restart,
    shown_status,
)
from streamhouse.errors import InvalidDefinition, PlaceLost
from streamhouse.model.pipeline import (
    Definition,
    DesiredState,
    Kind,
    Ownership,
    Phase,
    Pipeline,
    PipelineName,
    Shape,
    Status,
    StoredPipeline,
    SupervisorId,
)
from streamhouse.model.table import Column

SHAPE = Shape(streams=("orders",), state=("aggregate id",), target="totals")
DEFINITION = Definition(
    name=PipelineName("revenue"),
    kind=Kind.SQL,
    text="SELECT",
    target="totals",
    columns=(Column(name="id", type="INT"),),
    shape=SHAPE,
)
_, FIRST = decide_definition(None, PipelineRequest(definition=DEFINITION, starting="latest"), query_id="q1")


def test_the_first_definition_is_the_first_generation() -> None:
    assert (FIRST.revision, FIRST.generation, FIRST.query_id, FIRST.starting) == (1, 1, "q1", "latest")
    assert FIRST.wish is DesiredState.RUN


def test_the_same_again_is_no_change_even_where_it_may_begin_anew() -> None:
    again = PipelineRequest(definition=DEFINITION, starting="earliest", fresh=True)
    assert decide_definition(FIRST, again, query_id="q2") == (Outcome.UNCHANGED, FIRST)


def test_to_know_columns_better_is_no_change() -> None:
    better = replace(DEFINITION, columns=(Column(name="id", type="BIGINT"),))
    outcome, after = decide_definition(FIRST, PipelineRequest(definition=better), query_id="q2")
    assert (outcome, after.revision, after.definition) == (Outcome.UNCHANGED, 1, better)


def test_what_nobody_has_looked_at_stays_known_only_while_the_text_is_the_same() -> None:
    unseen = replace(DEFINITION, shape=None, columns=None)
    _, same = decide_definition(FIRST, PipelineRequest(definition=unseen), query_id="q2")
    assert same.definition == DEFINITION
    other = replace(unseen, text="SELECT more")
    outcome, changed = decide_definition(FIRST, PipelineRequest(definition=other), query_id="q2")
    assert (outcome, changed.definition.shape, changed.generation) == (Outcome.CHANGED, None, 1)


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (replace(SHAPE, streams=("clicks",)), "other streams"),
        (replace(SHAPE, state=()), "other state"),
        (replace(SHAPE, target="elsewhere"), "writes elsewhere"),
    ],
)
@pytest.mark.parametrize("text", ["SELECT", "SELECT more"])
def test_what_loses_its_place_is_refused_or_begins_anew(shape: Shape, why: str, text: str) -> None:
    request = PipelineRequest(definition=replace(DEFINITION, text=text, shape=shape), starting="earliest")
    with pytest.raises(PlaceLost, match=why):
        decide_definition(FIRST, request, query_id="q2")
    outcome, after = decide_definition(FIRST, replace(request, fresh=True), query_id="q2")
    assert (outcome, after.revision, after.generation) == (Outcome.CHANGED, 2, 2)
    assert (after.query_id, after.starting) == ("q2", "earliest")


SIGNED = replace(SHAPE, query=("Filter (amount > 0)",), signature="1:a")
SELECTED = replace(DEFINITION, text="SELECT 1 -- one", shape=SIGNED)
_, VIEWED = decide_definition(None, PipelineRequest(definition=replace(SELECTED, kind=Kind.VIEW)), query_id="q1")
_, SUMMED = decide_definition(None, PipelineRequest(definition=SELECTED), query_id="q1")


@pytest.mark.parametrize("before", [VIEWED, SUMMED], ids=["view", "pipeline"])
def test_another_query_is_refused_with_what_is_other(before: Pipeline) -> None:
    other = replace(SIGNED, query=("Filter (amount > 6)",), signature="1:b")
    request = PipelineRequest(definition=replace(before.definition, text="SELECT 2", shape=other), starting="earliest")
    with pytest.raises(PlaceLost, match=r"another query; was=Filter \(amount > 0\) is=Filter \(amount > 6\)"):
        decide_definition(before, request, query_id="q2")
    outcome, after = decide_definition(before, replace(request, fresh=True), query_id="q2")
    assert (outcome, after.generation, after.query_id) == (Outcome.CHANGED, 2, "q2")


@pytest.mark.parametrize("text", ["SELECT 1", "/* 1 */ SELECT\n1", "SELECT 2"])
def test_a_text_that_means_the_same_goes_on(text: str) -> None:
    request = PipelineRequest(definition=replace(VIEWED.definition, text=text))
    outcome, after = decide_definition(VIEWED, request, query_id="q2")
    assert (outcome, after.revision, after.generation) == (Outcome.CHANGED, 2, 1)


def test_the_same_text_goes_on_whatever_its_tables_have_become() -> None:
    request = PipelineRequest(
        definition=replace(VIEWED.definition, text="SELECT  1", shape=replace(SIGNED, signature="1:b"))
    )
    _, after = decide_definition(VIEWED, request, query_id="q2")
    assert (after.generation, after.definition) == (1, request.definition)


def test_in_python_the_layout_counts() -> None:
    before = replace(VIEWED, definition=replace(VIEWED.definition, kind=Kind.PYTHON, text="if a:\n  b\n  c"))
    request = PipelineRequest(
        definition=replace(before.definition, text="if a:\n  b\nc", shape=replace(SIGNED, signature="1:b"))
    )
    with pytest.raises(PlaceLost):
        decide_definition(before, request, query_id="q2")


def test_a_view_that_has_not_run_begins_anew_where_it_was_to_begin() -> None:
    before = replace(VIEWED, starting="latest")
    other = replace(VIEWED.definition, text="SELECT 2", shape=replace(SIGNED, signature="1:b"))
    _, after = decide_definition(before, PipelineRequest(definition=other), query_id="q2", has_run=False)
    assert (after.generation, after.query_id, after.starting) == (2, "q2", "latest")
    request = PipelineRequest(definition=replace(other, kind=Kind.SQL))
    with pytest.raises(PlaceLost):  # rows may be in its topic, which nobody takes out again
        decide_definition(SUMMED, request, query_id="q2", has_run=False)


def test_what_an_earlier_version_has_kept_goes_on_while_its_text_stays() -> None:
    old = replace(VIEWED, definition=replace(VIEWED.definition, shape=SHAPE))
    same = PipelineRequest(definition=VIEWED.definition)
    outcome, after = decide_definition(old, same, query_id="q2")
    assert (outcome, after.revision, after.definition.shape) == (Outcome.UNCHANGED, 1, SIGNED)
    with pytest.raises(PlaceLost, match="another version of StreamHouse"):
        decide_definition(old, PipelineRequest(definition=replace(VIEWED.definition, text="SELECT 2")), query_id="q2")


def test_a_restart_without_a_place_keeps_the_generation_and_runs_again() -> None:
    paused = replace(FIRST, wish=DesiredState.PAUSE)
    again = decide_restart(paused, None, query_id="q2")
    assert again == replace(FIRST, revision=2)
    anew = decide_restart(paused, "earliest", query_id="q2")
    assert anew == replace(FIRST, revision=2, generation=2, query_id="q2", starting="earliest")


@pytest.mark.parametrize("place", ["earliest", "latest", "2026-01-31", "2026-01-31T12:00:00+01:00", '{"o": {"0": 1}}'])
def test_places_to_start_from(place: str) -> None:
    check_starting(place)


@pytest.mark.parametrize(
    "place", ["", "now", "12", "[]", '{"o": 1}', '{"o": {"x": 1}}', '{"o": {"0": "1"}}', "[" * 9999]
)
def test_no_places_to_start_from(place: str) -> None:
    with pytest.raises(InvalidDefinition, match="do=use earliest"):
        check_starting(place)


def test_nobody_runs_what_nobody_owns() -> None:
    result = Status(phase=Phase.RUNNING, input_rate=5.0, rows_in=7, error="last")
    kept = StoredPipeline(pipeline=FIRST, owner=None, status=result)
    shown = shown_status(kept)
    assert (shown.phase, shown.input_rate, shown.rows_in, shown.error) == (Phase.WAITING, None, 7, "last")
    assert shown_status(replace(kept, pipeline=replace(FIRST, wish=DesiredState.PAUSE))).phase is Phase.PAUSED
    done = replace(result, phase=Phase.DONE)
    assert shown_status(replace(kept, status=done)) == done
    owner = Ownership(supervisor=SupervisorId("s"), epoch=1, expires_at_ms=1)
    assert shown_status(replace(kept, owner=owner)) == result
