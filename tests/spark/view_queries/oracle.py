"""What a view must hold: the batch query over the records so far.

Rows are compared as bags of texts: times in one form, numbers to nine digits.
"""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamhouse.errors import StreamhouseError
from streamhouse.spark.query.error_messages import root_cause
from tests.spark.view_queries.grammar import View, make_view
from tests.spark.view_queries.kept_view import Folders, refused, running
from tests.spark.view_queries.records import COLUMNS, PEOPLE, STREAMS, Batch, lines, make_batches, people

WHOLE = {"ignoreNullFields": "false", "timeZone": "UTC"}
BATCHES = 5
SEVERAL = "several rows of the result have one key"
LATE = "T07:"
"""In the times of records that are too late, and of no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`refused`: what was said when it was applied; `wrong`: how the view differed, and after which micro-batch."""

    seed: int
    statement: str
    refused: str = ""
    hint: str = ""
    wrong: str = ""
    rows: tuple[int, ...] = field(default=())


def judge(spark: SparkSession, folder: Path, seed: int) -> Outcome:
    """One random view over random records."""
    rng = random.Random(seed)
    view = make_view(rng)
    return judge_view(spark, folder, view, make_batches(rng, BATCHES, late="watermark" in view.options), seed)


def judge_view(spark: SparkSession, folder: Path, view: View, batches: Sequence[Batch], seed: int = 0) -> Outcome:
    folders = Folders(folder / "in")
    catalog = folders.catalog()
    problem = refused(spark, catalog, view.statement)
    if problem is not None:
        return Outcome(seed=seed, statement=view.statement, refused=problem.text, hint=problem.hint)
    results = []
    try:
        with running(spark, catalog, view.statement, folder / "checkpoint") as run:
            for batch in batches:
                folders.feed(batch)
                results.append(run.settled())
    except (PySparkException, StreamhouseError, StreamingQueryException) as error:
        said = root_cause(str(error))
        if SEVERAL in said and any(_has_twice(view, rows) for rows in batch_results(spark, view.query, batches)):
            return Outcome(seed=seed, statement=view.statement, refused=said, hint=said.partition(" do=")[2])
        return Outcome(seed=seed, statement=view.statement, wrong=f"it failed: {said[:400]}")
    wrong = ""
    expected = batch_results(spark, view.query, batches)
    in_time = (
        batch_results(spark, view.query, [_in_time(each) for each in batches])
        if view.options.get("watermark")
        else expected
    )
    for number, rows in enumerate(results):
        by_row = [row for row in expected[number] if LATE not in json.dumps(row)]
        candidates = [expected[number], in_time[number], by_row]
        if not any(_is_right(view, rows, each) for each in candidates):
            wrong = f"after micro-batch {number}:\n{_differences(rows, candidates[0])}"
            break
    return Outcome(seed=seed, statement=view.statement, wrong=wrong, rows=tuple(len(rows) for rows in results))


def _has_twice(view: View, rows: list[dict[str, Any]]) -> bool:
    """Whether two rows of the result have one key, which only the data tells."""
    return any(number > 1 for number in Counter(_key_text(view, row) for row in rows).values())


def _key_text(view: View, row: dict[str, Any]) -> str:
    return json.dumps([plain(row[name]) for name in view.key])


def _in_time(batch: Batch) -> Batch:
    """Without what is hours late."""
    return {name: [each for each in records if LATE not in each["at"]] for name, records in batch.items()}


def batch_results(spark: SparkSession, query: str, batches: Sequence[Batch]) -> list[list[dict[str, Any]]]:
    """The query's rows over the records up to each micro-batch, in one job."""
    session = spark.newSession()
    for name in STREAMS:
        query = query.replace(f"STREAM({name})", name)
    _frame(session, PEOPLE, people()).createOrReplaceTempView("people")
    whole: DataFrame | None = None
    for number in range(len(batches)):
        for name in STREAMS:
            records = [record for batch in batches[: number + 1] for record in batch[name]]
            _frame(session, COLUMNS, records).createOrReplaceTempView(name)
        result = session.sql(query).select(F.lit(number).alias("b"), F.to_json(F.struct("*"), WHOLE).alias("row"))
        whole = result if whole is None else whole.unionAll(result)
    assert whole is not None
    results: list[list[dict[str, Any]]] = [[] for _ in batches]
    for row in whole.collect():
        results[row["b"]].append(json.loads(row["row"]))
    return results


def _frame(session: SparkSession, columns: str, records: list[dict[str, Any]]) -> DataFrame:
    texts = [(text,) for text in lines(records).split("\n") if text]
    frame = session.createDataFrame(texts, "text STRING")
    return frame.select(F.from_json("text", columns).alias("r")).select("r.*")


# --- comparison


def _is_right(view: View, rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    if view.is_raw and not view.is_unique:  # the last one of a key stays: which that is, is another test's matter
        keys = [_key_text(view, row) for row in rows]
        definition = {_key_text(view, row) for row in expected}
        return len(keys) == len(set(keys)) and set(keys) == definition and not _bag(rows) - _bag(expected)
    return _bag(rows) == _bag(expected)


def _bag(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(plain(row), sort_keys=True) for row in rows)


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.9g}") + 0.0
    if isinstance(value, str) and value[4:5] == "-" and value[10:11] == "T":
        return datetime.fromisoformat(value).isoformat()
    return value


def _differences(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> str:
    have, want = _bag(rows), _bag(expected)
    results = [f"  not in the view: {each} x{n}" for each, n in (want - have).items()]
    results += [f"  not in the result: {each} x{n}" for each, n in (have - want).items()]
    return "\n".join(results[:20])
