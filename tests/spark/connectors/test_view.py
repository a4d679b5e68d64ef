"""A view is what its query says of all records: across micro-batches, late records, restarts and replays."""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

from streamhouse.errors import Rejected, Unavailable
from streamhouse.format.metadata_values import view_lookup_key
from streamhouse.model.table import Connector, Table
from streamhouse.spark.connectors import ReadContext, WriteContext, find, materialized_view
from streamhouse.spark.connectors.materialized_view import split_into_parts
from streamhouse.spark.connectors.view_key import key_of, view_key
from streamhouse.spark.connectors.view_query import mode_of
from streamhouse.spark.runtime.jvm import check_plan, plain_query, unsupported
from tests.spark.connectors.conftest import Lines
from tests.support.agent import LiveAgent
from tests.support.depth import scaled

pytestmark = pytest.mark.spark

PLACE = find(Connector.VIEW)
WINDOW = "window(ts, '1 minute')"
WINDOWS = f"SELECT {WINDOW} AS w, count(*) AS n FROM plays GROUP BY 1"
COUNTS = "SELECT user, count(*) AS c FROM plays GROUP BY user"
TIMED = f"SELECT {WINDOW} AS w, user, count(*) AS n FROM timed GROUP BY 1, 2"
JOINED = "timed a JOIN timed b ON a.user = b.user"
IN_TIME = f"{JOINED} AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 MINUTE"
SESSION = "session_window(ts, '5 minutes')"
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    """An agent whose leases outlast a slow machine."""
    with LiveAgent(tmp_path_factory.mktemp("views") / "data", "--set", "pipelines.ttl_s=1h") as running:
        yield running


@pytest.fixture(scope="module")
def http(keeper: LiveAgent) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{keeper.http}", trust_env=False, timeout=30) as client:
        yield client


@pytest.fixture
def lines(spark: SparkSession, tmp_path: Path) -> Lines:
    made = Lines(spark, tmp_path / "in", "ts TIMESTAMP, user STRING, n INT")
    made.stream().createOrReplaceTempView("plays")
    made.stream().withWatermark("ts", "1 minute").createOrReplaceTempView("timed")
    spark.sql("SELECT 3 AS most").createOrReplaceTempView("limits")
    return made


def play(ts: str, user: str | None, n: int) -> str:
    return json.dumps({"ts": f"2026-01-01T{ts}Z", "user": user, "n": n})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A view that this test runs, as a supervisor would."""

    spark: SparkSession
    http: httpx.Client
    table: Table
    writing: WriteContext

    def run(self, frame: DataFrame) -> None:
        query = PLACE.write_stream(frame, self.table, self.writing).trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    def rows(self) -> list[Row]:
        return sorted(PLACE.read(self.spark, self.table, ReadContext(agents=self.writing.agents)).collect(), key=str)

    def get(self, rest: str = "", **params: Any) -> Any:
        return self.http.get(f"/v1/views/{self.table.name}{rest}", params=params).json()


@pytest.fixture
def keep(spark: SparkSession, http: httpx.Client, keeper: LiveAgent, tmp_path: Path) -> Callable[..., Kept]:
    def keep(*, key: tuple[str, ...] = (), mode: str = "update") -> Kept:
        name = f"view-{next(NUMBERS)}"
        body = {"kind": "view", "text": f"CREATE MATERIALIZED VIEW `{name}` AS SELECT 1", "key": list(key)}
        http.put(f"/v1/pipelines/{name}", json=body).raise_for_status()
        response = http.post("/v1/supervisors/me/heartbeat", json={"host": "here", "slots": 100, "running": []}).json()
        [mine] = [each for each in response["assigned"] if each["pipeline"]["name"] == name]
        writing = WriteContext(
            agents=keeper.http,
            pipeline=name,
            epoch=mine["epoch"],
            query_id=mine["pipeline"]["query_id"],
            checkpoint=str(tmp_path / name),
            mode=mode,
        )
        return Kept(spark=spark, http=http, table=Table(name=name, connector=Connector.VIEW, key=key), writing=writing)

    return keep


# --- what a query tells


@pytest.mark.parametrize(
    ("text", "key", "mode"),
    [
        ("SELECT user, sum(n) AS total FROM plays GROUP BY user", ("user",), "update"),
        ("SELECT sum(n) AS total, upper(user) AS who FROM plays GROUP BY upper(user)", ("who",), "update"),
        (f"SELECT {WINDOW} AS w, user, count(*) FROM plays GROUP BY {WINDOW}, user", ("w", "user"), "update"),
        (f"SELECT {WINDOW}.start AS t, count(*) AS n FROM plays GROUP BY {WINDOW}", ("t",), "update"),
        (f"SELECT w.start AS a, w.end AS b, n * 2 AS m FROM ({WINDOWS})", ("a", "b"), "update"),
        (f"WITH t AS ({WINDOWS}) SELECT n, w AS when FROM t", ("when",), "update"),
        ("SELECT user, count(*) AS c FROM plays GROUP BY user HAVING c < 3", ("user",), "complete"),
        ("SELECT user, count(*) AS c FROM plays GROUP BY user ORDER BY c DESC LIMIT 3", ("user",), "complete"),
        (f"WITH t AS ({COUNTS}) SELECT user, c FROM t WHERE c < 3", ("user",), "complete"),
        (f"WITH t AS ({COUNTS}), u AS (SELECT * FROM t WHERE c < 3) SELECT * FROM u", ("user",), "complete"),
        (f"SELECT * FROM ({COUNTS}) WHERE c < 3", ("user",), "complete"),
        (f"WITH t AS ({COUNTS}) SELECT t.user, c FROM t JOIN limits ON c < most", None, "complete"),
        (f"WITH t AS ({COUNTS}) SELECT t.user, c FROM t LEFT JOIN limits ON c < most", None, "complete"),
        (f"WITH t AS ({COUNTS}) SELECT user, explode(sequence(c, 2)) AS c FROM t", None, "complete"),
        ("WITH t AS (SELECT * FROM plays WHERE n > 1) SELECT user, sum(n) FROM t GROUP BY user", ("user",), "update"),
        ("SELECT user, sum(n) FROM plays JOIN limits ON n < most GROUP BY user", ("user",), "update"),
        (f"{COUNTS} UNION ALL SELECT 'all', count(*) FROM plays", None, "complete"),
        ("SELECT count(*) AS c FROM plays", (), "update"),
        ("SELECT DISTINCT user, n FROM plays", ("user", "n"), "update"),
        ("SELECT user, n FROM plays WHERE n > 1", None, "append"),
        ("SELECT user, n FROM plays UNION ALL SELECT user, n + 1 FROM plays", None, "append"),
        ("SELECT user, x FROM plays, LATERAL explode(sequence(1, n)) AS e(x)", None, "append"),
        ("SELECT a.user, b.n FROM plays a JOIN plays b ON a.user = b.user", None, "append"),
        ("SELECT a.user, count(*) AS c FROM plays a JOIN plays b USING (user) GROUP BY a.user", ("user",), "update"),
        ("SELECT user, grouping_id() AS l, count(*) FROM plays GROUP BY ROLLUP (user)", ("user", "l"), "update"),
        (f"SELECT a.ts, count(*) AS c FROM {IN_TIME} GROUP BY a.ts", ("ts",), "update"),
        (f"SELECT a.user, count(*) AS c FROM {JOINED} GROUP BY a.user", ("user",), "update"),
        (f"SELECT user, {SESSION}.start AS s, count(*) FROM plays GROUP BY 1, {SESSION}", ("user", "s"), "complete"),
        (f"SELECT user, {SESSION}.start AS s, count(*) FROM timed GROUP BY 1, {SESSION}", ("user", "s"), "complete"),
        (f"SELECT {WINDOW}.start AS s, count(*) FROM timed GROUP BY {WINDOW}", ("s",), "update"),
    ],
)  # fmt: skip
def test_a_query_shows_its_key_and_how_its_rows_change(
    spark: SparkSession, lines: Lines, text: str, key: tuple[str, ...] | None, mode: str
) -> None:
    frame = plain_query(spark.sql(text))
    assert (key_of(frame), mode_of(frame)) == (key, mode)
    assert unsupported(frame, (mode,)) is None


@pytest.mark.parametrize(
    ("text", "key", "mode"),
    [
        (COUNTS, ("user",), "update"),
        (COUNTS, ("user", "c"), "complete"),
        ("SELECT count(*) AS c FROM plays", ("c",), "complete"),
        (f"SELECT {WINDOW}.start AS a, {WINDOW}.end AS b FROM plays GROUP BY {WINDOW}", ("b", "a"), "update"),
    ],
)
def test_rows_whose_key_changes_are_reported_with_all_others(
    spark: SparkSession, lines: Lines, text: str, key: tuple[str, ...], mode: str
) -> None:
    assert mode_of(spark.sql(text), view_key(spark.sql(text), key)) == mode


RECOMPUTED = "without STREAM"


def kept_by(frame: DataFrame, key: tuple[str, ...]) -> str:
    check_plan(frame)
    return mode_of(frame, view_key(frame, key))


@pytest.mark.parametrize(
    ("text", "key", "what", "do"),
    [
        (f"SELECT max(c) AS most FROM ({COUNTS})", (), "an aggregate, or DISTINCT, of", RECOMPUTED),
        (f"SELECT w, max(n) AS m FROM ({TIMED}) GROUP BY w", (), "an aggregate, or DISTINCT,", "output = 'append'"),
        (
            "SELECT count(*) AS c FROM (SELECT DISTINCT user FROM plays)",
            (),
            "an aggregate, or DISTINCT, of",
            RECOMPUTED,
        ),
        (f"SELECT DISTINCT c FROM ({COUNTS})", (), "an aggregate, or DISTINCT, of", RECOMPUTED),
        (f"{COUNTS} UNION SELECT user, n FROM plays", ("user", "c"), "a UNION of rows that change", RECOMPUTED),
        (f"{COUNTS} UNION ALL SELECT user, n FROM plays", ("user",), "a UNION of rows that change", RECOMPUTED),
        (f"SELECT a.user, c, n FROM ({COUNTS}) a JOIN plays b USING (user)", ("user",), "a join of a str", RECOMPUTED),
        ("SELECT a.user FROM plays a LEFT JOIN plays b USING (user)", ("user",), "LEFT OUTER JOIN of", "watermark"),
        ("SELECT a.n FROM plays a JOIN plays b ON a.n < b.n", ("n",), "joined by columns that are equal", "a.id = "),
        ("SELECT a.n FROM plays a, plays b", ("n",), "joined by columns that are equal", "a.id = b.id"),
        ("SELECT user, n FROM plays ORDER BY n LIMIT 3", ("user",), "the order of a stream's rows", RECOMPUTED),
        ("SELECT user, n FROM plays LIMIT 3", ("user",), "the order of a stream's rows", RECOMPUTED),
        (
            f"SELECT a.ts, count(*) AS c FROM {JOINED} GROUP BY 1",
            (),
            "older than the watermark",
            "leave the watermark out",
        ),
        (f"SELECT {SESSION} AS s, count(*) FROM plays GROUP BY 1", (), "groups by nothing else", "GROUP BY a column"),
        (f"{COUNTS} LIMIT 3", (), "LIMIT without ORDER BY", "ORDER BY"),
        ("SELECT user, rank() OVER (ORDER BY n) AS r FROM plays", ("user",), "OVER (…) has them", RECOMPUTED),
        ("SELECT user FROM plays EXCEPT SELECT 'ann'", ("user",), "the result of EXCEPT", RECOMPUTED),
        ("SELECT user, rand() AS r FROM plays", ("user",), "rand is something else every time", RECOMPUTED),
        ("SELECT user, now() AS r FROM plays", ("user",), "now is another time in every", "a time of the records"),
        ("SELECT user, last(n) AS n FROM plays GROUP BY user", (), "the order in which rows are read", "max_by"),
        ("SELECT user, count(*) AS c FROM plays GROUP BY CUBE (user)", (), "identified by their level", "grouping_id"),
        (
            "SELECT user, count(*) AS c FROM plays GROUP BY ROLLUP (user)",
            ("user",),
            "identified by their level",
            "grouping_id() AS level",
        ),
        ("SELECT count(*) AS c FROM plays GROUP BY user", ("c",), "identified by its grouping columns", "select it"),
        ("SELECT user, n FROM plays GROUP BY user, n", ("user",), "several rows of the result", "KEY (user, n)"),
        ("SELECT user, n, n * 2 AS N FROM plays", ("user",), "two columns are called n", "AS other"),
    ],
)
def test_what_cant_be_kept_right_is_refused_with_what_to_do(
    spark: SparkSession, lines: Lines, text: str, key: tuple[str, ...], what: str, do: str
) -> None:
    with pytest.raises(Rejected) as refused:
        kept_by(plain_query(spark.sql(text)), key)
    said, _, hint = str(refused.value).partition(" do=")
    assert what in said
    assert do in hint


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("SELECT user FROM (SELECT DISTINCT user, n FROM {})", "n"),
        ("SELECT upper(user) AS u FROM (SELECT DISTINCT user FROM {})", "user"),
        ("SELECT n FROM (SELECT user, n FROM {0} UNION SELECT user, n FROM {0})", "user"),
    ],
)
def test_a_row_of_a_distinct_is_identified_by_all_of_its_columns(spark: SparkSession, text: str, missing: str) -> None:
    """A key without one of them would keep one row of several."""
    frame = spark.sql(text.format("VALUES ('ann', 1), ('ann', 2) AS plays(user, n)"))
    for declared in ((), tuple(frame.columns)):
        with pytest.raises(Rejected, match=f"missing={missing} do=select it as well"):
            view_key(frame, declared)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f"SELECT {WINDOW}.start AS a, {WINDOW}.end AS b FROM plays GROUP BY {WINDOW}", ("a",)),
        (f"SELECT {WINDOW} AS w, {WINDOW}.end AS b FROM plays GROUP BY {WINDOW}", ("b",)),
        (f"SELECT user, {SESSION}.start AS a, {SESSION}.end AS b FROM plays GROUP BY user, {SESSION}", ("user", "a")),
        ("SELECT user, user AS who, count(*) AS c FROM plays GROUP BY user", ("who",)),
    ],
)  # fmt: skip
def test_of_columns_that_identify_a_row_one_is_enough(
    spark: SparkSession, lines: Lines, text: str, key: tuple[str, ...]
) -> None:
    assert view_key(spark.sql(text), key) == key


def test_a_key_that_is_not_there_is_reported(lines: Lines, spark: SparkSession, keep: Callable[..., Kept]) -> None:
    kept = keep()
    with pytest.raises(Rejected, match=r"missing=\S*user view=\S+ do=select it as well"):
        kept.run(spark.sql("SELECT count(*) AS c FROM plays GROUP BY user"))
    with pytest.raises(Rejected, match=r"a view needs a key.*do=CREATE MATERIALIZED VIEW … KEY \(column\)"):
        kept.run(spark.sql("SELECT user, n FROM plays"))
    kept = keep(key=("who",))
    with pytest.raises(Rejected, match="column=who columns=user,n"):
        kept.run(spark.sql("SELECT user, n FROM plays"))
    with pytest.raises(Rejected, match="a view is not a stream"):
        PLACE.read_stream(spark, kept.table, ReadContext(agents=kept.writing.agents))
    with pytest.raises(Unavailable, match="columns aren't known before it has run"):  # so that who reads it tries again
        kept.rows()


def test_parts_have_limits() -> None:
    assert split_into_parts([]) == [[]]
    assert [len(part) for part in split_into_parts([b"x"] * (2 * materialized_view.PART_ROWS + 1))] == [
        materialized_view.PART_ROWS,
        materialized_view.PART_ROWS,
        1,
    ]
    assert [len(part) for part in split_into_parts([b"x" * materialized_view.PART_BYTES] * 3)] == [1, 1, 1]


# --- what it keeps


def test_a_view_is_the_batch_result_across_micro_batches_late_records_and_restarts(
    spark: SparkSession, lines: Lines, keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = f"SELECT {WINDOW} AS w, user, sum(n) AS total, avg(n) AS mean FROM {{}} GROUP BY {WINDOW}, user"
    kept, frame = keep(), spark.sql(query.format("plays"))

    def expected() -> list[Row]:
        lines.batch().createOrReplaceTempView("all_plays")
        return sorted(spark.sql(query.format("all_plays")).collect(), key=str)

    lines.add(play("10:00:01", "ann", 1), play("10:00:59", "bob", 2), play("10:01:00", None, 3))
    lines.add(play("10:00:30", "ann", 4), play("10:01:59.999999", "ann", 5))
    kept.run(frame)
    assert kept.rows() == expected()

    lines.add(play("10:00:02", "ann", 6), play("10:07:00", "cat", 7))  # late, and in a window of its own
    kept.run(frame)  # from the checkpoint
    assert kept.rows() == expected()

    for committed in Path(kept.writing.checkpoint, "commits").glob("*2*"):  # as if it was killed behind the last part
        committed.unlink()
    kept.run(frame)
    assert kept.rows() == expected()

    monkeypatch.setattr(materialized_view, "PART_ROWS", 1)
    lines.add(*(play("10:00:03", user, 8) for user in ("ann", "bob", "cat", "dan")))
    with monkeypatch.context() as broken:
        ask, request = materialized_view._send, itertools.count()

        def third_fails(*args: Any) -> Any:
            if next(request) == 2:
                raise RuntimeError("killed between two parts")
            return ask(*args)

        broken.setattr(materialized_view, "_send", third_fails)
        with pytest.raises(StreamingQueryException, match="killed between two parts"):
            kept.run(frame)
    kept.run(frame)
    assert kept.rows() == expected()

    key = {"w": '{"start": "2026-01-01T10:00:00Z", "end": "2026-01-01T10:01:00Z"}', "user": "ann"}
    result = kept.get("/rows", **key)
    assert result["row"]["total"] == 1 + 4 + 6 + 8
    offsets = Path(kept.writing.checkpoint, "offsets", "3").read_text().splitlines()
    assert result["fresh_at_ms"] == json.loads(offsets[1])["batchTimestampMs"]
    response = kept.get()
    assert (response["key"], response["rows"], response["batch"]) == (["w", "user"], 7, 3)


LEAVING: tuple[tuple[str, tuple[str, ...]], ...] = (
    (f"WITH t AS ({COUNTS}) SELECT t.user, c FROM t JOIN limits ON c < most", ("user",)),
    (f"WITH t AS ({COUNTS}) SELECT * FROM t WHERE c < 3 ORDER BY c DESC, user LIMIT 5", ()),
    (f"WITH t AS ({COUNTS}) SELECT user, c FROM t WHERE c < 3", ()),
    ("SELECT user, count(*) AS c FROM plays GROUP BY user HAVING c < 3", ()),
)


@pytest.mark.parametrize(("text", "key"), scaled(quick=LEAVING[:2], nightly=LEAVING))
def test_rows_that_leave_the_result_leave_the_view(
    spark: SparkSession, lines: Lines, keep: Callable[..., Kept], text: str, key: tuple[str, ...]
) -> None:
    kept = keep(key=key)
    query = plain_query(spark.sql(text))
    lines.add(play("10:00:00", "ann", 1), play("10:00:00", "bob", 1), play("10:00:00", "ann", 1))
    kept.run(query)
    assert [tuple(row) for row in kept.rows()] == [("ann", 2), ("bob", 1)]
    lines.add(play("10:00:00", "ann", 1))
    kept.run(query)
    assert [tuple(row) for row in kept.rows()] == [("bob", 1)]


def test_a_query_without_an_aggregate_keeps_the_last_row_of_each_key(
    spark: SparkSession, lines: Lines, keep: Callable[..., Kept]
) -> None:
    kept = keep(key=("user",))
    lines.add(*(play("10:00:00", f"user-{n % 1500}", n) for n in range(3000)))
    lines.add(play("10:00:00", "user-7", 9))
    kept.run(spark.sql("SELECT user, n FROM plays"))
    rows = {row.user: row.n for row in kept.rows()}
    assert rows == {f"user-{n}": 9 if n == 7 else 1500 + n for n in range(1500)}
    assert kept.get("/rows", user="user-8")["row"] == {"user": "user-8", "n": 1508}


def test_the_only_row_of_a_query_without_groups(spark: SparkSession, lines: Lines, keep: Callable[..., Kept]) -> None:
    kept = keep()
    lines.add(play("10:00:00", "ann", 1), play("10:00:00", "bob", 2))
    kept.run(spark.sql("SELECT sum(n) AS total FROM plays"))
    assert kept.get("/rows")["rows"] == [{"total": 3}]


@pytest.mark.parametrize("key", ["k", "struct(k, n)", "array(k)"])
def test_keys_whose_bytes_are_no_text_are_distinguished(spark: SparkSession, key: str) -> None:
    """A binary `_key`, say: in JSON all of these would be the same sign."""
    texts = (
        "unhex(d) FROM VALUES ('FF'), ('FE'), ('80'), ('EFBFBD'), ('EFBFBD4646'), ('EFBFBD464'), ('41'), (NULL) t(d)"
    )
    frame = spark.sql(
        f"SELECT {key} AS key FROM (SELECT 1 AS n, CAST({texts.replace(' FROM', ' AS STRING) AS k FROM')})"
    )
    rows = materialized_view.Rows(key=("key",), columns=("key",), is_unique=True)
    written = [
        json.loads(row[0])["key"] for row in materialized_view.changes(frame, rows, with_version=False).collect()
    ]
    assert len(set(map(view_lookup_key, written))) == 8
    if key == "k":
        assert {"A", "\ufffd", None} < {each for (each,) in written}


VALUES = (
    "user",
    "ts AS at",
    "timestamp_ntz '2026-01-02 03:04:05.5' AS local",
    "DATE '2026-01-02' AS day",
    "CAST('12345678901234567890.12' AS DECIMAL(22,2)) AS big",
    "CAST(1.50 AS DECIMAL(5,2)) AS small",
    "1e300D AS d",
    "9007199254740993L AS l",
    "X'00ff' AS raw",
    "array(struct(ts AS t, CAST(NULL AS INT) AS nothing)) AS nested",
    "map('k', ts) AS m",
    "map(7, array(map(DATE '2026-01-02', ts))) AS numbered",
    "named_struct('a-b', 1, 'c d', array(named_struct('e.f', 'x', 'g`h', 'y'))) AS odd",
    "CAST(NULL AS TIMESTAMP) AS no_time",
    "true AS yes",
    "'a \"quoted\"\\n{line}' AS text",
)


def test_values_of_every_type_come_back_as_they_went(
    spark: SparkSession, lines: Lines, keep: Callable[..., Kept]
) -> None:
    kept = keep(key=("at", "user"))
    lines.add(play("10:00:00.000001", "ann", 1), play("10:00:00", "bob", 1))
    kept.run(spark.sql(f"SELECT {', '.join(VALUES)} FROM plays"))
    assert kept.rows() == sorted(lines.batch().selectExpr(*VALUES).collect(), key=str)
    row = kept.get("/rows", at="2026-01-01T10:00:00Z", user="bob")["row"]
    shown = {name: row[name] for name in ("at", "local", "day", "big", "small", "no_time")}
    assert shown == {
        "at": "2026-01-01T10:00:00Z",
        "local": "2026-01-02T03:04:05.5",
        "day": "2026-01-02",
        "big": "12345678901234567890.12",
        "small": 1.5,
        "no_time": None,
    }


def test_who_has_lost_the_view_changes_nothing(spark: SparkSession, lines: Lines, keep: Callable[..., Kept]) -> None:
    kept = keep()
    lines.add(play("10:00:00", "ann", 1))
    old = replace(kept, writing=replace(kept.writing, epoch=kept.writing.epoch - 1))
    with pytest.raises(StreamingQueryException, match="pipeline moved"):
        old.run(spark.sql("SELECT user, count(*) AS c FROM plays GROUP BY user"))
    assert kept.get()["rows"] == 0
