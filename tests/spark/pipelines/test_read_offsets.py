"""What a query has read, from the progress of its micro-batches as Spark reports it."""

from typing import Any

from streamhouse.spark.pipelines.query_metrics import MAX_READ_PARTITIONS, ReadOffsets


def progress(start: dict[str, int] | None, end: dict[str, int], topic: str = "orders") -> dict[str, Any]:
    offsets = {"startOffset": None if start is None else {"offsets": {topic: start}}}
    return {"sources": [{**offsets, "endOffset": {"offsets": {topic: end}}}]}


def test_it_begins_where_the_first_micro_batch_began() -> None:
    read = ReadOffsets()
    read.add(progress({"0": 5}, {"0": 9}))
    read.add(progress({"0": 9}, {"0": 12, "1": 3}))
    assert read.as_progress() == {"orders": {"0": (5, 12), "1": (3, 3)}}


def test_sources_without_offsets_of_topics_say_nothing() -> None:
    read = ReadOffsets()
    read.add({"sources": [{"startOffset": 4, "endOffset": "5"}, {}]})
    read.add(progress(None, {"0": 9}))
    assert read.as_progress() == {}


def test_a_status_carries_few_partitions_only() -> None:
    read = ReadOffsets()
    read.add(progress({}, {str(number): 1 for number in range(MAX_READ_PARTITIONS + 1)}))
    assert read.as_progress() == {}
