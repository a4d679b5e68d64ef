"""A checkpoint's folder: made with the query's id, and put back from what a commit stored."""

import json

import pytest

from streamhouse.errors import CheckpointLost, Internal, Misconfigured
from streamhouse.spark.runtime.checkpoint_folder import LastCommit, check_versions, checkpoint_path, prepare

QUERY = "6a1f5d1e-0000-4000-8000-000000000001"
OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"offsets":{"orders":{"0":17}}}'


class MemoryFolder:
    def __init__(self, files: dict[str, str] | None = None) -> None:
        self.files = files or {}

    def read(self, name: str) -> str | None:
        return self.files.get(name)

    def write(self, name: str, text: str) -> None:
        self.files[name] = text


def test_a_new_query_has_the_pipelines_id() -> None:
    folder = MemoryFolder()
    assert prepare(folder, query_id=QUERY, state=(), before=LastCommit()) is None
    assert {name: json.loads(text) for name, text in folder.files.items()} == {"metadata": {"id": QUERY}}


def test_a_checkpoint_that_is_there_is_left_alone() -> None:
    folder = MemoryFolder({"metadata": json.dumps({"id": QUERY})})
    before = LastCommit(epoch=3, progress={"offsets": OFFSETS}, has_run=True)
    assert prepare(folder, query_id=QUERY, state=("aggregate",), before=before) is None
    assert list(folder.files) == ["metadata"]


def test_another_querys_checkpoint_is_refused() -> None:
    folder = MemoryFolder({"metadata": json.dumps({"id": "another"})})
    with pytest.raises(Internal):
        prepare(folder, query_id=QUERY, state=(), before=LastCommit())


def test_a_query_without_state_goes_on_from_its_last_commit() -> None:
    folder = MemoryFolder()
    result = prepare(folder, query_id=QUERY, state=(), before=LastCommit(epoch=3, progress={"offsets": OFFSETS}))
    assert result is not None
    assert "micro-batch 3" in result
    assert {name for name in folder.files if name.startswith("offsets")} == {"offsets/2", "offsets/3"}
    assert folder.files["offsets/3"] == OFFSETS
    assert folder.files["commits/3"].startswith("v1\n")
    assert json.loads(folder.files["metadata"]) == {"id": QUERY}


def test_a_first_micro_batch_has_none_before_it() -> None:
    folder = MemoryFolder()
    prepare(folder, query_id=QUERY, state=(), before=LastCommit(epoch=0, progress={"offsets": OFFSETS}))
    assert {name for name in folder.files if name.startswith("offsets")} == {"offsets/0"}


@pytest.mark.parametrize(
    ("state", "before"),
    [
        (("aggregate by window",), LastCommit(epoch=3, progress={"offsets": OFFSETS})),
        (("aggregate by window",), LastCommit(has_run=True)),
        ((), LastCommit(epoch=3, progress=None)),
        ((), LastCommit(has_run=True)),
    ],
)
def test_what_cannot_be_put_back_is_said_with_what_to_do(state: tuple[str, ...], before: LastCommit) -> None:
    folder = MemoryFolder()
    with pytest.raises(CheckpointLost, match="--from"):
        prepare(folder, query_id=QUERY, state=state, before=before)
    assert not folder.files


def test_every_generation_has_a_folder_of_its_own() -> None:
    assert checkpoint_path("/data/checkpoints/", "copies", QUERY, 2) == f"/data/checkpoints/copies-{QUERY}/2"


def test_the_state_of_a_join_has_versions_from_its_beginning() -> None:
    folder = MemoryFolder()
    check_versions(folder, ("join",), name="v", has_run=False)
    prepare(folder, query_id=QUERY, state=("join",), before=LastCommit())
    folder.write("offsets/0", OFFSETS)
    check_versions(folder, ("join",), name="v", has_run=False)
    assert folder.read("versions") == "1"


def test_the_state_of_a_join_without_versions_is_refused_with_what_to_do() -> None:
    folder = MemoryFolder({"metadata": json.dumps({"id": QUERY}), "offsets/0": OFFSETS})
    with pytest.raises(Misconfigured, match="do=start over: streamhouse pipelines restart v --from earliest"):
        check_versions(folder, ("join",), name="v", has_run=False)
    check_versions(folder, (), name="v", has_run=False)
    assert folder.read("versions") is None


def test_the_state_of_a_join_is_that_of_an_earlier_release_also_when_its_first_offsets_are_gone() -> None:
    folder = MemoryFolder({"metadata": json.dumps({"id": QUERY}), "offsets/400": OFFSETS})
    with pytest.raises(Misconfigured, match="do=start over: streamhouse pipelines restart v --from earliest"):
        check_versions(folder, ("join",), name="v", has_run=True)


def test_a_join_that_has_read_nothing_may_have_versions() -> None:
    folder = MemoryFolder({"metadata": json.dumps({"id": QUERY})})
    check_versions(folder, ("join",), name="v", has_run=False)
    assert folder.read("versions") == "1"
