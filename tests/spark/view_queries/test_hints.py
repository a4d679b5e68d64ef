"""Every refusal says what to do, and what it says is accepted, starts, and is done with a micro-batch."""

from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from streamhouse.spark.connectors import ReadContext
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.resolver import resolve
from streamhouse.spark.query.validation import validate
from streamhouse.spark.runtime.jvm import unsupported
from streamhouse.sql.options import pipeline_options
from streamhouse.sql.parser import parse
from streamhouse.sql.statements import CreatePipeline, CreateView
from tests.spark.view_queries.kept_view import Folders, refreshed, running
from tests.spark.view_queries.records import Batch
from tests.support.depth import scaled

pytestmark = pytest.mark.spark

ANEW: Final = "ANEW"
"""As a statement that follows a hint: the refused one with its tables named without STREAM."""
WITHOUT_STREAM: Final = "name its tables without STREAM"
LOOKUP: Final = "WITH (lookup = 'on arrival')"
IN_TIME: Final = "q.at BETWEEN p.at AND p.at + INTERVAL 1 HOUR"
VIEW: Final = "CREATE MATERIALIZED VIEW v"
PIPELINE: Final = "CREATE PIPELINE p"
INTO: Final = "AS INSERT INTO t"
OF_COUNTS: Final = "(SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user)"
WINDOWED: Final = (
    "(SELECT user, window(at, '5 minutes') AS w, count(*) AS c FROM STREAM(plays)"
    " GROUP BY user, window(at, '5 minutes'))"
)
RECORDS: Final[Batch] = {
    name: [
        {"id": number, "at": f"2026-01-01T10:0{number}:00Z", "user": user, "n": number % 2, "d": 1.5}
        for number, user in enumerate(("ann", "bob", "ann"))
    ]
    for name in ("plays", "pays")
}

CASES: Final = [
    # --- keys of views
    (f"{VIEW} AS SELECT id FROM STREAM(plays)", "KEY (column)", [f"{VIEW} KEY (id) AS SELECT id FROM STREAM(plays)"]),
    (
        f"{VIEW} KEY (user) AS SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user, n",
        "select it as well, and where there is a KEY, name it there",
        [f"{VIEW} KEY (user, n) AS SELECT user, n, count(*) AS c FROM STREAM(plays) GROUP BY user, n"],
    ),
    (
        f"{VIEW} KEY (user) AS SELECT user, n, count(*) AS c FROM STREAM(plays) GROUP BY user, n",
        "KEY (user, n), or GROUP BY the columns of the key alone",
        [
            f"{VIEW} KEY (user, n) AS SELECT user, n, count(*) AS c FROM STREAM(plays) GROUP BY user, n",
            f"{VIEW} KEY (user) AS SELECT user, max(n) AS n, count(*) AS c FROM STREAM(plays) GROUP BY user",
        ],
    ),
    (
        f"{VIEW} AS SELECT s.user, s.n, count(*) AS c FROM (SELECT struct(user, n) AS s FROM STREAM(plays)) GROUP BY s",
        "select it as well",
        [f"{VIEW} AS SELECT s, s.n, count(*) AS c FROM (SELECT struct(user, n) AS s FROM STREAM(plays)) GROUP BY s"],
    ),
    (
        f"{VIEW} AS SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY ROLLUP (user)",
        "SELECT grouping_id() AS level as well",
        [f"{VIEW} AS SELECT user, grouping_id() AS level, count(*) AS c FROM STREAM(plays) GROUP BY ROLLUP (user)"],
    ),
    (
        f"{VIEW} KEY (user) AS SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY CUBE (user)",
        "where there is a KEY, name level in it",
        [
            f"{VIEW} KEY (user, level) AS"
            " SELECT user, grouping_id() AS level, count(*) AS c FROM STREAM(plays) GROUP BY CUBE (user)"
        ],
    ),
    (
        f"{VIEW} AS SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY GROUPING SETS ((user), (user))",
        "name each set once, and SELECT grouping_id() AS level as well",
        [
            f"{VIEW} AS SELECT user, grouping_id() AS level, count(*) AS c FROM STREAM(plays)"
            " GROUP BY GROUPING SETS ((user))"
        ],
    ),
    (
        f"{VIEW} AS SELECT user, user, count(*) AS c FROM STREAM(plays) GROUP BY user",
        "give one another name: … AS other",
        [f"{VIEW} AS SELECT user, user AS other, count(*) AS c FROM STREAM(plays) GROUP BY user"],
    ),
    (
        f"{VIEW} KEY (id) AS SELECT id, user FROM STREAM(plays) UNION SELECT id, user FROM STREAM(pays)",
        "KEY (id, user)",
        [f"{VIEW} KEY (id, user) AS SELECT id, user FROM STREAM(plays) UNION SELECT id, user FROM STREAM(pays)"],
    ),
    (
        f"{VIEW} AS FROM STREAM(plays) |> WHERE n = 1",
        "KEY (column)",
        [f"{VIEW} KEY (id) AS FROM STREAM(plays) |> WHERE n = 1"],
    ),
    # --- two things are wrong: both are said
    (
        f"{VIEW} AS FROM STREAM(plays) |> SELECT id, n |> ORDER BY id |> LIMIT 2",
        f"{WITHOUT_STREAM}|KEY (column)",
        [f"{VIEW} KEY (id) AS FROM plays |> SELECT id, n |> ORDER BY id |> LIMIT 2"],
    ),
    (
        f"{VIEW} AS SELECT a.user, a.c, b.c AS d FROM {OF_COUNTS} a JOIN {OF_COUNTS} b ON a.user = b.user",
        f"{WITHOUT_STREAM}|KEY (column)",
        [
            f"{VIEW} KEY (user) AS SELECT a.user, a.c, b.c AS d FROM {OF_COUNTS} a JOIN {OF_COUNTS} b"
            " ON a.user = b.user".replace("STREAM(plays)", "plays")
        ],
    ),
    # --- what no stream can be kept right with
    (f"{VIEW} AS SELECT c, count(*) AS n FROM {OF_COUNTS} GROUP BY c", WITHOUT_STREAM, [ANEW]),
    (f"{VIEW} KEY (id) AS SELECT id, row_number() OVER (ORDER BY id) AS r FROM STREAM(plays)", WITHOUT_STREAM, [ANEW]),
    (f"{VIEW} KEY (id) AS SELECT id FROM STREAM(plays) ORDER BY id LIMIT 2", WITHOUT_STREAM, [ANEW]),
    (
        f"{VIEW} AS SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user LIMIT 3",
        "ORDER BY columns that identify rows",
        [f"{VIEW} AS SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user ORDER BY user LIMIT 3"],
    ),
    (f"{VIEW} KEY (id) AS SELECT id FROM STREAM(plays) EXCEPT SELECT id FROM STREAM(pays)", WITHOUT_STREAM, [ANEW]),
    (f"{VIEW} KEY (id) AS SELECT id FROM STREAM(plays) INTERSECT SELECT id FROM STREAM(pays)", WITHOUT_STREAM, [ANEW]),
    (
        f"{VIEW} KEY (id) AS SELECT p.id FROM STREAM(plays) p LEFT ANTI JOIN STREAM(pays) q ON p.user = q.user",
        f"={WITHOUT_STREAM}",
        [ANEW],
    ),
    (
        f"{VIEW} KEY (user) AS {OF_COUNTS[1:-1]} UNION ALL SELECT concat(user, '2'), n FROM STREAM(pays) WHERE id = 0",
        WITHOUT_STREAM,
        [ANEW],
    ),
    (
        f"{VIEW} KEY (id) AS SELECT p.id, a.c FROM STREAM(plays) p JOIN {OF_COUNTS} a ON p.user = a.user",
        WITHOUT_STREAM,
        [ANEW],
    ),
    (
        f"{VIEW} AS SELECT * FROM (SELECT user, n, d FROM STREAM(plays)) PIVOT (sum(d) FOR n IN (0, 1))",
        WITHOUT_STREAM,
        [ANEW],
    ),
    (
        f"{VIEW} KEY (id) AS SELECT id FROM STREAM(plays)"
        " QUALIFY row_number() OVER (PARTITION BY user ORDER BY id) = 1",
        WITHOUT_STREAM,
        [ANEW],
    ),
    (
        f"{VIEW} KEY (user) AS SELECT e.user FROM people e LEFT ANTI JOIN STREAM(plays) p USING (user)",
        f"{WITHOUT_STREAM}|{WITHOUT_STREAM}",
        [],
    ),
    (
        f"{VIEW} KEY (id, city) AS SELECT p.id, e.city FROM STREAM(plays) p RIGHT JOIN people e ON e.user = p.user",
        f"{WITHOUT_STREAM}|{WITHOUT_STREAM}",
        [ANEW],
    ),
    # --- tables that may change after rows were made with them
    (
        f"{VIEW} KEY (id, city) AS SELECT p.id, e.city FROM STREAM(plays) p LEFT JOIN people e ON e.user = p.user",
        LOOKUP,
        [
            f"{VIEW} KEY (id, city) {LOOKUP} AS SELECT p.id, e.city FROM STREAM(plays) p LEFT JOIN people e"
            " ON e.user = p.user",
            ANEW,
        ],
    ),
    (
        f"{VIEW} AS SELECT user, count(*) AS c FROM STREAM(plays) WHERE user IN (SELECT user FROM people)"
        " GROUP BY user",
        LOOKUP,
        [
            f"{VIEW} {LOOKUP} AS SELECT user, count(*) AS c FROM STREAM(plays) WHERE user IN (SELECT user FROM people)"
            " GROUP BY user",
            ANEW,
        ],
    ),
    # --- joins and subqueries
    (
        f"{VIEW} KEY (id, other) AS"
        " SELECT p.id, q.id AS other FROM STREAM(plays) p LEFT JOIN STREAM(pays) q ON p.user = q.user",
        "give both streams a watermark, join within a time",
        [
            f"{VIEW} KEY (id, other) WITH (watermark = 'at 10 seconds', output = 'append') AS"
            " SELECT p.id, q.id AS other"
            f" FROM STREAM(plays) p LEFT JOIN STREAM(pays) q ON p.user = q.user AND {IN_TIME}",
            ANEW,
        ],
    ),
    (
        f"{VIEW} KEY (id, other) AS"
        " SELECT p.id, q.id AS other FROM STREAM(plays) p FULL JOIN STREAM(pays) q ON p.user = q.user",
        "give both streams a watermark, join within a time",
        [
            f"{VIEW} KEY (id, other) WITH (watermark = 'at 10 seconds', output = 'append') AS"
            " SELECT p.id, q.id AS other"
            f" FROM STREAM(plays) p FULL JOIN STREAM(pays) q ON p.user = q.user AND {IN_TIME}",
            ANEW,
        ],
    ),
    (
        f"{VIEW} KEY (id, other) AS SELECT p.id, q.id AS other FROM STREAM(plays) p JOIN STREAM(pays) q ON p.n < q.n",
        "JOIN … ON a.id = b.id, or name one of them without STREAM",
        [
            f"{VIEW} KEY (id, other) AS"
            " SELECT p.id, q.id AS other FROM STREAM(plays) p JOIN STREAM(pays) q ON p.id = q.id AND p.n < q.n",
            f"{VIEW} KEY (id, other) {LOOKUP} AS"
            " SELECT p.id, q.id AS other FROM STREAM(plays) p JOIN pays q ON p.n < q.n",
        ],
    ),
    (
        f"{VIEW} AS SELECT user, count(*) AS c FROM STREAM(plays) WHERE user IN (SELECT user FROM STREAM(pays))"
        " GROUP BY user",
        f"join the streams, or {WITHOUT_STREAM}",
        [
            ANEW,
            f"{VIEW} AS SELECT p.user, count(*) AS c FROM STREAM(plays) p JOIN STREAM(pays) q ON p.user = q.user"
            " GROUP BY p.user",
        ],
    ),
    (
        f"{VIEW} KEY (id) AS SELECT id, (SELECT max(n) FROM STREAM(pays)) AS m FROM STREAM(plays)",
        WITHOUT_STREAM,
        [ANEW],
    ),
    (
        f"{VIEW} WITH (watermark = 'at 15 minutes') AS SELECT p.user, window(p.at, '5 minutes') AS w, count(*) AS c"
        " FROM STREAM(plays) p JOIN STREAM(pays) q ON p.user = q.user GROUP BY p.user, window(p.at, '5 minutes')",
        "join within a time, AND b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR, or leave the watermark out",
        [
            f"{VIEW} WITH (watermark = 'at 15 minutes') AS SELECT p.user, window(p.at, '5 minutes') AS w, count(*) AS c"
            f" FROM STREAM(plays) p JOIN STREAM(pays) q ON p.user = q.user AND {IN_TIME}"
            " GROUP BY p.user, window(p.at, '5 minutes')",
            f"{VIEW} AS SELECT p.user, window(p.at, '5 minutes') AS w, count(*) AS c"
            " FROM STREAM(plays) p JOIN STREAM(pays) q ON p.user = q.user GROUP BY p.user, window(p.at, '5 minutes')",
        ],
    ),
    (
        f"{VIEW} KEY (id) AS"
        " SELECT id, user FROM STREAM(plays) UNION ALL SELECT -1, user FROM people WHERE city = 'Rome'",
        f"read both with STREAM(…), or {WITHOUT_STREAM}|{WITHOUT_STREAM}",
        [
            ANEW,
            f"{VIEW} KEY (id) AS"
            " SELECT id, user FROM STREAM(plays) UNION ALL SELECT -1, user FROM STREAM(people) WHERE city = 'Rome'",
        ],
    ),
    (
        f"{VIEW} AS SELECT p.user, x.k, count(*) AS c FROM STREAM(plays) p,"
        " LATERAL (SELECT count(*) AS k FROM people e WHERE e.user = p.user) x GROUP BY p.user, x.k",
        "JOIN (SELECT id, count(*) … GROUP BY id) b ON a.id = b.id, or, in a view, name its tables without STREAM"
        f"|{LOOKUP}",
        [
            f"{VIEW} {LOOKUP} AS SELECT p.user, x.k, count(*) AS c FROM STREAM(plays) p"
            " JOIN (SELECT user, count(*) AS k FROM people GROUP BY user) x ON x.user = p.user GROUP BY p.user, x.k",
            ANEW,
        ],
    ),
    (
        f"{VIEW} AS SELECT user, (SELECT count(*) FROM people e WHERE e.user = p.user) AS k, count(*) AS c"
        " FROM STREAM(plays) p GROUP BY user",
        "JOIN (SELECT id, count(*) AS n … GROUP BY id) b ON a.id = b.id, and GROUP BY b.n",
        [
            f"{VIEW} {LOOKUP} AS SELECT p.user, b.n, count(*) AS c FROM STREAM(plays) p"
            " JOIN (SELECT user, count(*) AS n FROM people GROUP BY user) b ON p.user = b.user GROUP BY p.user, b.n"
        ],
    ),
    (
        f"{VIEW} AS SELECT id FROM STREAM(plays) UNION ALL SELECT id, n FROM STREAM(pays)",
        "run the SELECT without STREAM in `streamhouse sql`, part by part",
        [],
    ),
    # --- functions
    (f"{VIEW} KEY (id) AS SELECT id, now() AS t FROM STREAM(plays)", "use a time of the records", [ANEW]),
    *(
        (f"{VIEW} KEY (id) AS SELECT id, at > {time} AS t FROM STREAM(plays)", "use a time of the records", [ANEW])
        for time in ("'now'", "to_timestamp('today')", "date('tomorrow')", "TIMESTAMP ' Now'", "DATE 'yesterday'")
    ),
    (
        f"{PIPELINE} {INTO} SELECT id FROM STREAM(plays) WHERE at > TIMESTAMP 'today'",
        "now() and current_date()",
        [f"{PIPELINE} {INTO} SELECT id FROM STREAM(plays) WHERE at > current_date() AND user <> 'today'"],
    ),
    (f"{VIEW} KEY (id) AS SELECT id, rand() AS t FROM STREAM(plays)", "leave it out", [ANEW]),
    (
        f"{VIEW} AS SELECT user, first(n) AS t FROM STREAM(plays) GROUP BY user",
        "min_by(column, at) or max_by(column, at)",
        [f"{VIEW} AS SELECT user, min_by(n, at) AS t, max_by(n, at) AS u FROM STREAM(plays) GROUP BY user"],
    ),
    (
        f"{VIEW} AS SELECT user, collect_list(n) AS t FROM STREAM(plays) GROUP BY user",
        "sort_array(collect_list(column))",
        [f"{VIEW} AS SELECT user, sort_array(collect_list(n)) AS t FROM STREAM(plays) GROUP BY user"],
    ),
    (
        f"{VIEW} AS SELECT user COLLATE UTF8_LCASE AS u, count(*) AS c FROM STREAM(plays)"
        " GROUP BY user COLLATE UTF8_LCASE",
        "GROUP BY lower(column) COLLATE UTF8_BINARY, or name its tables without STREAM",
        [
            f"{VIEW} AS SELECT lower(user COLLATE UTF8_LCASE) COLLATE UTF8_BINARY AS u, count(*) AS c"
            " FROM STREAM(plays) GROUP BY 1",
            ANEW,
        ],
    ),
    (
        f"{VIEW} AS SELECT DISTINCT user COLLATE UNICODE_CI AS u FROM STREAM(plays)",
        "GROUP BY lower(column) COLLATE UTF8_BINARY, or name its tables without STREAM",
        [ANEW],
    ),
    (
        f"{PIPELINE} {INTO} SELECT p.id FROM STREAM(plays) p JOIN STREAM(pays) q"
        " ON p.user COLLATE UTF8_LCASE = q.user COLLATE UTF8_LCASE",
        "GROUP BY lower(column) COLLATE UTF8_BINARY, or name its tables without STREAM",
        [f"{PIPELINE} {INTO} SELECT p.id FROM STREAM(plays) p JOIN STREAM(pays) q ON lower(p.user) = lower(q.user)"],
    ),
    (
        f"{VIEW} AS SELECT n, max(user COLLATE UTF8_LCASE) AS t FROM STREAM(plays) GROUP BY n",
        "column COLLATE UTF8_BINARY",
        [f"{VIEW} AS SELECT n, max(user COLLATE UTF8_LCASE COLLATE UTF8_BINARY) AS t FROM STREAM(plays) GROUP BY n"],
    ),
    (
        f"{VIEW} AS SELECT n, sort_array(collect_list(user COLLATE UTF8_LCASE)) AS t FROM STREAM(plays) GROUP BY n",
        "column COLLATE UTF8_BINARY",
        [
            f"{VIEW} AS SELECT n, sort_array(collect_list(user COLLATE UTF8_BINARY)) AS t,"
            " size(collect_list(user COLLATE UTF8_LCASE)) AS s FROM STREAM(plays) GROUP BY n",
        ],
    ),
    (
        f"{VIEW} AS SELECT n, array_sort(collect_list(struct(user, id)), (l, r) -> INT(l.id % 2 - r.id % 2)) AS t"
        " FROM STREAM(plays) GROUP BY n",
        "sort_array(collect_list(struct(at, id)))",
        [
            f"{VIEW} AS SELECT n, sort_array(collect_list(struct(id % 2 AS o, user, id))) AS t,"
            " array_sort(collect_list(id)) AS u FROM STREAM(plays) GROUP BY n",
        ],
    ),
    (
        f"{VIEW} AS SELECT n, collect_set(user) AS t FROM STREAM(plays) GROUP BY n",
        "sort_array(collect_set(column))",
        [
            f"{VIEW} AS SELECT n, sort_array(collect_set(user)) AS t FROM STREAM(plays) GROUP BY n",
            f"{VIEW} AS SELECT n, array_contains(collect_set(user), 'ann') AS t FROM STREAM(plays) GROUP BY n",
        ],
    ),
    (
        f"{VIEW} AS SELECT user, mode(n) AS t FROM STREAM(plays) GROUP BY user",
        "mode() WITHIN GROUP (ORDER BY column)",
        [f"{VIEW} AS SELECT user, mode() WITHIN GROUP (ORDER BY n) AS t FROM STREAM(plays) GROUP BY user"],
    ),
    (
        f"{VIEW} AS SELECT n, listagg(user, ',') WITHIN GROUP (ORDER BY d) AS t FROM STREAM(plays) GROUP BY n",
        "listagg(column, ', ') WITHIN GROUP (ORDER BY column)",
        [f"{VIEW} AS SELECT n, listagg(user, ',') WITHIN GROUP (ORDER BY d, user) AS t FROM STREAM(plays) GROUP BY n"],
    ),
    (
        f"{VIEW} AS SELECT n, listagg(user, ',') AS t FROM STREAM(plays) GROUP BY n",
        "WITHIN GROUP (ORDER BY column)",
        [f"{VIEW} AS SELECT n, listagg(user, ', ') WITHIN GROUP (ORDER BY user) AS t FROM STREAM(plays) GROUP BY n"],
    ),
    (
        f"{VIEW} AS SELECT user, count(DISTINCT n) AS t FROM STREAM(plays) GROUP BY user",
        "cardinality(collect_set(column)), or approx_count_distinct(column)",
        [
            f"{VIEW} AS SELECT user, cardinality(collect_set(n)) AS t, approx_count_distinct(n) AS u"
            " FROM STREAM(plays) GROUP BY user",
            ANEW,
        ],
    ),
    (
        f"{VIEW} AS SELECT session_window(at, '3 minutes') AS w, count(*) AS c FROM STREAM(plays)"
        " GROUP BY session_window(at, '3 minutes')",
        "GROUP BY a column as well",
        [
            f"{VIEW} AS SELECT user, session_window(at, '3 minutes') AS w, count(*) AS c FROM STREAM(plays)"
            " GROUP BY user, session_window(at, '3 minutes')",
            ANEW,
        ],
    ),
    # --- types
    (
        f"{VIEW} AS SELECT DISTINCT map('n', n) AS m FROM STREAM(plays)",
        "SELECT the columns and GROUP BY them, in place of DISTINCT",
        [f"{VIEW} AS SELECT map('n', n) AS m FROM STREAM(plays) GROUP BY map('n', n)"],
    ),
    (
        f"{VIEW} AS SELECT parse_json(user) AS j, count(*) AS c FROM STREAM(plays) GROUP BY parse_json(user)",
        "GROUP BY to_json(column)",
        [
            f"{VIEW} AS SELECT to_json(parse_json(user)) AS j, count(*) AS c FROM STREAM(plays)"
            " GROUP BY to_json(parse_json(user))"
        ],
    ),
    # --- output modes
    (
        f"{VIEW} WITH (output = 'append') AS SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user",
        "WITH (output = 'update')",
        [
            f"{VIEW} WITH (output = 'append', watermark = 'at 10 seconds') AS SELECT user, window(at, '1 minute') AS w,"
            " count(*) AS c FROM STREAM(plays) GROUP BY user, window(at, '1 minute')",
            f"{VIEW} WITH (output = 'update') AS SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user",
            ANEW,
        ],
    ),
    (
        f"{VIEW} KEY (id) WITH (output = 'complete') AS SELECT id, n FROM STREAM(plays)",
        "leave the option output out",
        [f"{VIEW} KEY (id) AS SELECT id, n FROM STREAM(plays)", ANEW],
    ),
    (
        f"{VIEW} WITH (watermark = 'at 15 minutes') AS SELECT w, max(c) AS most FROM {WINDOWED} GROUP BY w",
        "WITH (output = 'append') the view has rows once they are final",
        [
            f"{VIEW} WITH (watermark = 'at 15 minutes', output = 'append') AS SELECT w, max(c) AS most FROM {WINDOWED}"
            " GROUP BY w",
            ANEW,
        ],
    ),
    # --- names
    (
        f"{VIEW} AS SELECT usr, count(*) AS c FROM STREAM(plays) GROUP BY usr",
        "did you mean user",
        [f"{VIEW} AS SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user"],
    ),
    (
        f"{VIEW} AS SELECT user, cuont(*) AS c FROM STREAM(plays) GROUP BY user",
        "did you mean count",
        [f"{VIEW} AS SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user"],
    ),
    (
        f"{VIEW} AS SELECT user, count(*) AS c FROM STREAM(play) GROUP BY user",
        "did you mean plays",
        [f"{VIEW} AS SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user"],
    ),
    (
        f"{VIEW} AS SELECT user, n, count(*) AS c FROM STREAM(plays) GROUP BY user",
        "add n to GROUP BY, or write GROUP BY ALL",
        [f"{VIEW} AS SELECT user, n, count(*) AS c FROM STREAM(plays) GROUP BY ALL"],
    ),
    (
        f"{VIEW} AS SELECT user, count(*) AS c FROM STREAM(plays)",
        "GROUP BY these columns, or GROUP BY ALL",
        [f"{VIEW} AS SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user"],
    ),
    (
        f"{VIEW} AS SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user EMIT CHANGES",
        "leave EMIT CHANGES out",
        [f"{VIEW} AS SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user"],
    ),
    (
        f"{VIEW} AS WITH plays AS (SELECT * FROM STREAM(plays)) SELECT user, count(*) AS c FROM plays GROUP BY user",
        "give the WITH another name",
        [f"{VIEW} AS WITH p AS (SELECT * FROM STREAM(plays)) SELECT user, count(*) AS c FROM p GROUP BY user"],
    ),
    (
        f"{VIEW} KEY (nope) AS SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user",
        "there are user, c",
        [f"{VIEW} KEY (user) AS SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user"],
    ),
    # --- pipelines
    (
        f"{PIPELINE} {INTO} SELECT id FROM plays",
        "FROM STREAM(plays)",
        [f"{PIPELINE} {INTO} SELECT id FROM STREAM(plays)"],
    ),
    (
        f"{PIPELINE} {INTO} FROM plays |> SELECT id",
        "FROM STREAM(plays)",
        [f"{PIPELINE} {INTO} FROM STREAM(plays) |> SELECT id"],
    ),
    (
        f"{PIPELINE} {INTO} FROM STREAM(plays) |> SELECT id, n |> ORDER BY id |> LIMIT 2",
        "leave ORDER BY and LIMIT out",
        [f"{PIPELINE} {INTO} FROM STREAM(plays) |> SELECT id, n"],
    ),
    (
        f"{PIPELINE} {INTO} SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user ORDER BY user LIMIT 3",
        "leave ORDER BY and LIMIT out",
        [f"{PIPELINE} {INTO} SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user"],
    ),
    (
        f"{PIPELINE} {INTO} SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user LIMIT 3",
        "leave LIMIT out",
        [f"{PIPELINE} {INTO} SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user"],
    ),
    (
        f"{PIPELINE} {INTO} SELECT id, row_number() OVER (PARTITION BY user ORDER BY at) AS n FROM STREAM(plays)",
        "group by window(column, '1 minute'), and use max_by or min_by",
        [
            f"{PIPELINE} {INTO} SELECT user, min_by(id, at) AS id FROM STREAM(plays)"
            " GROUP BY user, window(at, '1 minute')"
        ],
    ),
    (
        f"{PIPELINE} {INTO} SELECT id FROM STREAM(plays) EXCEPT SELECT id FROM STREAM(pays)",
        "CREATE MATERIALIZED VIEW",
        [f"{VIEW} KEY (id) AS SELECT id FROM plays EXCEPT SELECT id FROM pays"],
    ),
    (
        f"{PIPELINE} {INTO} SELECT p.id FROM people e LEFT JOIN STREAM(plays) p ON e.user = p.user",
        "CREATE MATERIALIZED VIEW",
        [f"{VIEW} KEY (id, city) AS SELECT p.id, e.city FROM people e LEFT JOIN plays p ON e.user = p.user"],
    ),
    (
        f"{PIPELINE} {INTO} SELECT p.id FROM STREAM(plays) p LEFT JOIN STREAM(pays) q ON p.user = q.user",
        "give both streams a watermark, and join within a time",
        [
            f"{PIPELINE} WITH (watermark = 'at 10 seconds') {INTO} SELECT p.id FROM STREAM(plays) p"
            f" LEFT JOIN STREAM(pays) q ON p.user = q.user AND {IN_TIME}"
        ],
    ),
    (
        f"{PIPELINE} {INTO} SELECT p.id FROM STREAM(plays) p JOIN STREAM(pays) q ON p.n < q.n",
        "JOIN … ON a.id = b.id, or name one of them without STREAM",
        [
            f"{PIPELINE} {INTO} SELECT p.id FROM STREAM(plays) p JOIN STREAM(pays) q ON p.id = q.id",
            f"{PIPELINE} {INTO} SELECT p.id FROM STREAM(plays) p JOIN pays q ON p.n < q.n",
        ],
    ),
    (
        f"{PIPELINE} WITH (output = 'append') {INTO} SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user",
        "WITH (output = 'update')",
        [
            f"{PIPELINE} WITH (output = 'update') {INTO} SELECT user, count(*) AS c FROM STREAM(plays) GROUP BY user",
            f"{PIPELINE} WITH (output = 'append', watermark = 'at 10 seconds') {INTO} SELECT user, count(*) AS c"
            " FROM STREAM(plays) GROUP BY user, window(at, '1 minute')",
        ],
    ),
    (
        f"{PIPELINE} WITH (output = 'complete') {INTO} SELECT id FROM STREAM(plays)",
        "leave the option output out",
        [f"{PIPELINE} {INTO} SELECT id FROM STREAM(plays)"],
    ),
    (
        f"{PIPELINE} {INTO} SELECT user, count(DISTINCT n) AS c FROM STREAM(plays) GROUP BY user",
        "cardinality(collect_set(column)), or approx_count_distinct(column)",
        [
            f"{PIPELINE} {INTO} SELECT user, cardinality(collect_set(n)) AS c FROM STREAM(plays) GROUP BY user",
            f"{PIPELINE} {INTO} SELECT user, approx_count_distinct(n) AS c FROM STREAM(plays) GROUP BY user",
        ],
    ),
    (
        f"{PIPELINE} {INTO} SELECT c, count(*) AS k FROM {OF_COUNTS} GROUP BY c",
        "GROUP BY window(…) below and above",
        [
            f"{PIPELINE} WITH (watermark = 'at 10 seconds') {INTO} SELECT w.start AS at, max(c) AS k FROM {WINDOWED}"
            " GROUP BY w",
            f"{VIEW} KEY (c) AS SELECT c, count(*) AS k FROM {OF_COUNTS} GROUP BY c".replace("STREAM(plays)", "plays"),
        ],
    ),
    (
        f"{PIPELINE} {INTO} SELECT id FROM STREAM(plays) WHERE n > (SELECT avg(n) FROM STREAM(pays))",
        "name the table of the subquery without STREAM",
        [f"{PIPELINE} {INTO} SELECT id FROM STREAM(plays) WHERE n > (SELECT avg(n) FROM pays)"],
    ),
    (
        f"{PIPELINE} {INTO} SELECT user FROM STREAM(plays) UNION ALL SELECT user FROM people",
        "read both with STREAM(…)",
        [f"{PIPELINE} {INTO} SELECT user FROM STREAM(plays) UNION ALL SELECT user FROM STREAM(people)"],
    ),
    (
        f"{PIPELINE} {INTO} SELECT id, id FROM STREAM(plays)",
        "give one another name: … AS other",
        [f"{PIPELINE} {INTO} SELECT id, id AS other FROM STREAM(plays)"],
    ),
    (
        f"{PIPELINE} {INTO} SELECT substring(user) AS x FROM STREAM(plays)",
        "DESCRIBE FUNCTION substring",
        [f"{PIPELINE} {INTO} SELECT substring(user, 1, 2) AS x FROM STREAM(plays)"],
    ),
    (
        f"{PIPELINE} {INTO} SELECT n + at AS x FROM STREAM(plays)",
        "cast one of them",
        [f"{PIPELINE} {INTO} SELECT n + CAST(at AS BIGINT) AS x FROM STREAM(plays)"],
    ),
    (
        f"{PIPELINE} {INTO} SELECT user FROM STREAM(plays) p JOIN people e ON p.user = e.user",
        "write e.user or p.user",
        [f"{PIPELINE} {INTO} SELECT p.user FROM STREAM(plays) p JOIN people e ON p.user = e.user"],
    ),
    (
        f"{PIPELINE} WITH (watermark = 'att 1 minute') {INTO} SELECT id FROM STREAM(plays)",
        "there are id, at",
        [f"{PIPELINE} WITH (watermark = 'at 1 minute') {INTO} SELECT id FROM STREAM(plays)"],
    ),
]


STARTED: Final = scaled(quick=CASES[::16][:2] + CASES[80::4], nightly=CASES)
"""The definitions of these are run; the others of a run with quick depth are only validated."""


@pytest.mark.parametrize(("refused", "hint", "followed"), CASES)
def test_what_is_refused_says_what_to_do_and_that_works(
    spark: SparkSession, tmp_path: Path, refused: str, hint: str, followed: list[str]
) -> None:
    folders = Folders(tmp_path / "in")
    folders.feed(RECORDS)
    catalog = folders.catalog()
    [checked] = validate(spark, catalog, refused)
    hints = [problem.hint for problem in checked.problems]
    assert all(hints), checked.problems
    for part, said in zip(hint.split("|"), hints, strict=True):
        assert said.startswith(part[1:]) if part.startswith("=") else part in said
    for number, text in enumerate(followed):
        statement = refused.replace("STREAM(plays)", "plays").replace("STREAM(pays)", "pays") if text is ANEW else text
        [again] = validate(spark, catalog, statement)
        assert again.problems == (), statement
        if (refused, hint, followed) in STARTED:
            runs(spark, catalog, statement, tmp_path / f"checkpoint-{number}")


def runs(spark: SparkSession, catalog: Catalog, statement: str, checkpoint: Path) -> None:
    """Until all records are read; raises where it fails."""
    [parsed] = parse(statement)
    assert isinstance(parsed, CreatePipeline | CreateView)
    options = pipeline_options(parsed.options)
    frame = resolve(spark, parsed.select, catalog, ReadContext(agents="nowhere:1", watermarks=options.watermarks)).frame
    if not frame.isStreaming:
        assert isinstance(parsed, CreateView)
        refreshed(spark, catalog, statement, checkpoint)
    elif isinstance(parsed, CreateView):
        with running(spark, catalog, statement, checkpoint) as run:
            run.settled()
    else:
        mode = options.output or ("append" if unsupported(frame, ("append",)) is None else "update")
        writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(checkpoint))
        query = writer.start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
