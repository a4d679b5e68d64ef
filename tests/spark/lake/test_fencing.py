"""A lake table belongs to the owner of its pipeline: who was the owner before commits nothing, and nothing is twice."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from streamhouse.errors import PipelineMoved, Unavailable
from streamhouse.model.table import Connector
from streamhouse.spark.lake.iceberg_table import IcebergLakeTable
from tests.spark.lake.conftest import QUERY_ID, Make, Written
from tests.support.depth import scaled

pytestmark = pytest.mark.spark

ATOMIC = (Connector.ICEBERG, Connector.DELTA)
LAKES = (*ATOMIC, Connector.PARQUET)
STEPS = ("last_batch", "evolve_schema", "plan_files", "commit")
EVERYWHERE = tuple((connector, step) for connector in ATOMIC for step in STEPS)
INTERRUPTED = scaled(
    quick=(*((Connector.ICEBERG, step) for step in STEPS), (Connector.DELTA, "commit")), nightly=EVERYWHERE
)
"""Before which call of which table something happens."""
ORDERS = "id BIGINT, amount INT"


def ids(table: Written) -> list[int]:
    return sorted(row.id for row in table.read().collect())


def visible_to_others(table: Written) -> list[int]:
    return sorted(pq.ParquetFile(file).read()["id"][0].as_py() for file in Path(table.location).glob("*.parquet"))


def before(table: Written, step: str, act: Any) -> None:
    """Something happens right before the next call of a function of the table."""
    called = getattr(table.lake, step)

    def wrapped(*args: Any, **named: Any) -> Any:
        setattr(table.lake, step, called)
        act()
        return called(*args, **named)

    setattr(table.lake, step, wrapped)


@pytest.mark.parametrize("connector", LAKES)
def test_who_was_the_owner_commits_nothing_although_its_successor_has_written_nothing(
    make: Make, connector: Connector
) -> None:
    old = make(connector)
    old.write(0, ORDERS, (1, 1))
    new = old.take_over(ORDERS)
    with pytest.raises(PipelineMoved, match="epoch=1"):
        old.write(1, ORDERS, (2, 2))
    assert ids(new) == [1]
    new.write(1, ORDERS, (2, 2))
    assert ids(new) == [1, 2]


@pytest.mark.parametrize("connector", LAKES)
def test_a_query_of_the_generation_before_a_restart_commits_nothing(make: Make, connector: Connector) -> None:
    old, stopped = make(connector), make(connector)
    old.write(0, ORDERS, (1, 1))
    new = old.begin_anew(ORDERS)
    with pytest.raises(PipelineMoved, match="epoch=1"):
        old.write(1, ORDERS, (2, 2))
    with pytest.raises(PipelineMoved, match="epoch=1"):
        stopped.step.take_over(stopped.spark.createDataFrame([], ORDERS))
    new.write(0, ORDERS, (3, 3))
    assert ids(new) == [1, 3]


@pytest.mark.parametrize(("connector", "step"), INTERRUPTED)
def test_a_restart_in_the_middle_of_a_micro_batch_ends_it(make: Make, connector: Connector, step: str) -> None:
    old = make(connector)
    old.write(0, ORDERS, (1, 1))
    before(old, step, lambda: old.begin_anew(ORDERS))
    with pytest.raises((PipelineMoved, Unavailable)):
        old.write(1, ORDERS, (2, 2))
    with pytest.raises(PipelineMoved):
        old.write(1, ORDERS, (2, 2))
    assert ids(old) == [1]


@pytest.mark.parametrize(("connector", "step"), INTERRUPTED)
def test_a_take_over_in_the_middle_of_a_micro_batch_ends_it(make: Make, connector: Connector, step: str) -> None:
    old = make(connector)
    old.write(0, ORDERS, (1, 1))
    before(old, step, lambda: old.take_over(ORDERS))
    with pytest.raises((PipelineMoved, Unavailable)):
        old.write(1, ORDERS, (2, 2))
    assert ids(old) == [1]
    assert old.lake.last_batch(QUERY_ID) == 0


@pytest.mark.parametrize("connector", LAKES)
def test_a_take_over_before_there_is_a_table_counts(make: Make, connector: Connector) -> None:
    old = make(connector)
    before(old, "evolve_schema", lambda: old.take_over(ORDERS))
    with pytest.raises((PipelineMoved, Unavailable)):
        old.write(0, ORDERS, (1, 1))
    assert ids(old) == []


@pytest.mark.parametrize(("connector", "step"), [each for each in INTERRUPTED if each[1] != "last_batch"])
@pytest.mark.parametrize("key", scaled(quick=[("id",)], nightly=[(), ("id",)]))
def test_a_micro_batch_that_another_session_commits_meanwhile_is_there_once(
    make: Make, connector: Connector, step: str, key: tuple[str, ...]
) -> None:
    first, second = make(connector, *key), make(connector, *key)
    first.write(0, ORDERS, (1, 1))
    before(first, step, lambda: second.write(1, ORDERS, (2, 2)))
    with pytest.raises(Unavailable):
        first.write(1, ORDERS, (2, 2))
    first.restart()
    first.write(1, ORDERS, (2, 2))  # it is there
    assert ids(first) == [1, 2]


@pytest.mark.parametrize("connector", ATOMIC)
def test_files_are_not_merged_by_who_was_the_owner(make: Make, connector: Connector) -> None:
    old = make(connector)
    old.write(0, ORDERS, (1, 1))
    files = old.lake.data_files()
    new = old.take_over(ORDERS)
    new.write(1, ORDERS, (2, 2))
    old.lake.last_batch(QUERY_ID)
    with pytest.raises(PipelineMoved):
        old.lake.commit((), files, old.step.progress_of(1), is_rewrite=True)
    assert ids(new) == [1, 2]


def test_files_that_a_replaced_owner_writes_late_are_no_rows(make: Make) -> None:
    """It was stopped when it had planned them, and goes on when its successor has committed the micro-batch."""
    old = make(Connector.PARQUET)
    old.write(0, ORDERS, (1, 1))
    successors: list[Written] = []
    planned = old.lake.plan_files

    def stopped(*args: Any, **named: Any) -> Any:
        plan = planned(*args, **named)
        new = old.take_over(ORDERS)
        new.write(1, ORDERS, (2, 2))
        successors.append(new)
        return plan

    setattr(old.lake, "plan_files", stopped)  # noqa: B010
    with pytest.raises(PipelineMoved, match="epoch=1"):
        old.write(1, ORDERS, (2, 2))
    (new,) = successors
    assert ids(new) == [1, 2]
    new.write(2, ORDERS, (3, 3))
    assert ids(new) == [1, 2, 3]
    assert visible_to_others(new) == [1, 2, 3]


def test_files_that_a_replaced_owner_wrote_late_are_deleted_when_a_query_starts(make: Make) -> None:
    table = make(Connector.PARQUET)
    table.write(0, ORDERS, (1, 1))
    (file,) = Path(table.location).glob("*.parquet")
    late = file.with_name(file.name.replace("-e1-", "-e0-"))
    shutil.copy(file, late)
    old_release = file.with_name(file.name.replace("-e1-", "-"))
    shutil.copy(file, old_release)
    assert ids(table) == [1, 1]
    table.take_over(ORDERS)
    assert (late.exists(), old_release.exists()) == (False, True)


@pytest.mark.parametrize("connector", LAKES)
def test_an_owner_may_start_its_query_again_and_again(make: Make, connector: Connector) -> None:
    table = make(connector)
    for batch in range(3):
        table.restart()
        table.step.take_over(table.spark.createDataFrame([], ORDERS))
        table.write(batch, ORDERS, (batch, 1))
    assert ids(table) == [0, 1, 2]


def test_a_table_that_another_engine_made_is_not_committed_to_again_without_a_look(make: Make) -> None:
    """PyIceberg would load the table again, and put the commit behind whatever it finds."""
    first, second = make(Connector.ICEBERG), make(Connector.ICEBERG)
    assert isinstance(first.lake, IcebergLakeTable)
    first.write(0, ORDERS, (1, 1))
    with first.lake._table().transaction() as transaction:
        transaction.remove_properties("commit.retry.num-retries")
    before(first, "commit", lambda: second.write(1, ORDERS, (2, 2)))
    with pytest.raises(Unavailable):
        first.write(1, ORDERS, (2, 2))
    before(first, "commit", lambda: first.take_over(ORDERS))
    with pytest.raises(Unavailable):
        first.write(2, ORDERS, (3, 3))
    assert ids(first) == [1, 2]
