"""A checkpoint knows whose query it is, and another one doesn't go on with it."""

import json
from dataclasses import replace

import pytest

from streamhouse.errors import Misconfigured
from streamhouse.model.pipeline import Shape
from streamhouse.spark.pipelines.checkpoint_query import FILE, check_query
from tests.spark.runtime.test_checkpoint_folder import MemoryFolder

SHAPE = Shape(streams=("orders",), state=("aggregate",), target="v", query=("Filter (a > 0)",), signature="1:a")
OTHER = replace(SHAPE, query=("Filter (a > 6)",), signature="1:b")
TEXT = "SELECT a FROM STREAM(orders)"


@pytest.fixture
def folder() -> MemoryFolder:
    made = MemoryFolder()
    check_query(made, name="v", text=TEXT, shape=SHAPE, has_run=False)
    return made


def kept(folder: MemoryFolder) -> str:
    result: str = json.loads(folder.files[FILE])["shape"]["signature"]
    return result


def test_another_query_is_refused_with_what_to_do(folder: MemoryFolder) -> None:
    why = r"was=Filter \(a > 0\) is=Filter \(a > 6\) do=apply the earlier text again, or start over:"
    for _ in range(2):
        with pytest.raises(Misconfigured, match=f"{why} streamhouse pipelines restart v --from earliest"):
            check_query(folder, name="v", text="SELECT 2", shape=OTHER, has_run=True)
    check_query(folder, name="v", text=TEXT, shape=SHAPE, has_run=True)


def test_a_query_that_means_the_same_goes_on_and_is_known_from_then_on(folder: MemoryFolder) -> None:
    check_query(folder, name="v", text="SELECT b.a FROM STREAM(orders) b", shape=SHAPE, has_run=True)
    check_query(folder, name="v", text="SELECT b.a FROM STREAM(orders) b", shape=OTHER, has_run=True)
    assert kept(folder) == "1:b"


def test_the_same_text_over_another_place_is_refused(folder: MemoryFolder) -> None:
    with pytest.raises(Misconfigured, match="it reads other tables"):
        check_query(folder, name="v", text=TEXT, shape=replace(SHAPE, tables=("orders=topic x",)), has_run=True)


def test_while_no_micro_batch_was_begun_any_query_may_have_it(folder: MemoryFolder) -> None:
    check_query(folder, name="v", text="SELECT 2", shape=OTHER, has_run=False)
    assert kept(folder) == "1:b"
    folder.files["offsets/0"] = "v1"
    with pytest.raises(Misconfigured):
        check_query(folder, name="v", text=TEXT, shape=SHAPE, has_run=False)


def test_a_checkpoint_of_an_earlier_version_is_taken_for_the_querys_own() -> None:
    folder = MemoryFolder({"metadata": "{}", "offsets/0": "v1"})
    check_query(folder, name="v", text=TEXT, shape=SHAPE, has_run=True)
    assert kept(folder) == "1:a"
