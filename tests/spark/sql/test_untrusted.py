"""Untrusted SQL: what comes through an agent can read tables, and reaches nothing of the worker's machine."""

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from streamhouse.errors import StatementError
from streamhouse.spark.sql.untrusted import FUNCTION_GROUPS, FUNCTIONS, TABLE_FUNCTIONS, check_untrusted

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "(SELECT 1) UNION (SELECT 2)",
        "with a as (select 1) select * from a",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
        "SELECT transform(array(1), x -> x + 1)",
        "SELECT * FROM a JOIN b USING (id)",
        "SELECT 'reflect', 'INSERT INTO', insert FROM a",
        "-- insert\nDESCRIBE orders",
        "DESCRIBE QUERY SELECT a FROM b",
        "DESCRIBE FUNCTION abs",
        "SHOW TABLES",
        "SHOW COLUMNS IN orders",
        "EXPLAIN SELECT 1",
        "EXPLAIN FORMATTED WITH a AS (SELECT 1) SELECT * FROM a",
        "VALUES (1, 'a'), (2, upper('b'))",
        "TABLE orders",
        "SELECT a, count(*) FROM STREAM(t) GROUP BY a HAVING count(*) > 1 ORDER BY a LIMIT 3 OFFSET 1",
        "SELECT a, grouping(a), sum(b) FROM t GROUP BY ROLLUP (a)",
        "SELECT window(at, '1 minute') AS w, sum(x) FROM t GROUP BY window(at, '1 minute')",
        "SELECT row_number() OVER w, sum(x) OVER (PARTITION BY y) FROM t WINDOW w AS (ORDER BY x)",
        "SELECT * FROM t WHERE a IN (SELECT b FROM u) AND EXISTS (SELECT 1 FROM v) AND c = (SELECT max(d) FROM w)",
        "SELECT * FROM a, LATERAL (SELECT a.x + 1)",
        "SELECT * FROM a LATERAL VIEW explode(x) t AS y",
        "SELECT * FROM range(10)",
        "SELECT * FROM a TABLESAMPLE (3 ROWS)",
        "SELECT * FROM a PIVOT (sum(x) FOR y IN (1, 2))",
        "SELECT * FROM a UNPIVOT (v FOR n IN (x, y))",
        "SELECT * FROM a EXCEPT SELECT * FROM b INTERSECT SELECT * FROM c",
        "FROM a |> WHERE x > 1 |> AGGREGATE sum(x) AS s GROUP BY y",
        "SELECT get_json_object(v, '$.a'), from_json(v, 'a INT'), CAST(x AS DECIMAL(9, 2)), x:y.z FROM a",
        "SELECT /*+ BROADCAST(b) */ * FROM a JOIN b ON a.x = b.y",
        "SELECT system.builtin.abs(-1), uuid(), version()",
        "SELECT no_such_function(1)",
        "SELECT * FROM IDENTIFIER('orders')",
    ],
)
def test_queries_may_be_asked(spark: SparkSession, text: str) -> None:
    check_untrusted(spark, text)


@pytest.mark.parametrize(
    "text",
    [
        "SET spark.sql.ansi.enabled = false",
        "RESET",
        "ADD JAR '/tmp/x.jar'",
        "LIST JARS",
        "EXPLAIN ADD JAR '/tmp/x.jar'",
        "EXPLAIN CREATE TABLE t USING text OPTIONS (path '/etc/passwd')",
        "EXPLAIN EXTENDED CREATE TEMPORARY VIEW t USING text OPTIONS (path '/etc/passwd')",
        "EXPLAIN EXPLAIN ADD JAR '/tmp/x.jar'",
        "EXPLAIN INSERT INTO b SELECT 1",
        "EXPLAIN SELECT reflect('java.lang.System', 'getenv')",
        "DESCRIBE QUERY SELECT reflect('java.lang.System', 'getenv')",
        "CREATE TABLE t USING text OPTIONS (path '/etc/passwd')",
        "CREATE OR REPLACE TEMPORARY VIEW t USING text OPTIONS (path '/etc/passwd')",
        "CREATE FUNCTION f AS 'X' USING JAR '/tmp/x.jar'",
        "CREATE DATABASE d LOCATION '/tmp/x'",
        "LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE t",
        "INSERT OVERWRITE DIRECTORY '/tmp/x' SELECT 1",
        "INSERT INTO b SELECT 1",
        "WITH a AS (SELECT 1) INSERT INTO b SELECT * FROM a",
        "FROM a INSERT INTO b SELECT * INSERT INTO c SELECT *",
        "MERGE INTO a USING b ON a.x = b.x WHEN MATCHED THEN DELETE",
        "DELETE FROM a",
        "UPDATE a SET x = 1",
        "TRUNCATE TABLE a",
        "DROP TABLE a",
        "CACHE TABLE x AS SELECT 1",
        "REFRESH '/etc'",
        "ANALYZE TABLE a COMPUTE STATISTICS",
        "USE other",
        "CALL anything()",
        "DECLARE VARIABLE x INT",
        "SHOW CREATE TABLE a",
        "SELECT reflect('java.lang.System', 'getenv')",
        "SELECT `Java_Method`('java.lang.System', 'getenv')",
        "SELECT system.builtin.reflect('java.lang.System', 'getenv')",
        "SELECT try_reflect('java.lang.System', 'getenv')",
        "VALUES (reflect('java.lang.System', 'getenv'))",
        "SELECT * FROM a WHERE x IN (SELECT reflect('java.lang.System', 'getenv'))",
        "SELECT (SELECT max(reflect('java.lang.System', 'getenv')) FROM b) FROM a",
        "WITH a AS (SELECT reflect('java.lang.System', 'getenv') AS x) SELECT * FROM a",
        "SELECT transform(array(1), x -> reflect('java.lang.System', 'getenv'))",
        "SELECT * FROM a, LATERAL (SELECT reflect('java.lang.System', 'getenv'))",
        "SELECT sum(x) OVER (ORDER BY reflect('java.lang.System', 'getenv')) FROM a",
        "FROM a |> EXTEND reflect('java.lang.System', 'getenv') AS x",
        "SELECT from_protobuf(x, 'Message', '/etc/passwd') FROM a",
        "SELECT * FROM python_worker_logs()",
        "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'getenv')",
        "SELECT current_user()",
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "SELECT TRANSFORM (id) USING 'cat' FROM a",
        'SELECT TRANSFORM (id) USING /* here */ "cat" FROM a',
        "SELECT * FROM (SELECT TRANSFORM (id) USING 'cat' FROM a)",
        "BEGIN SELECT 1; END",
    ],
)
def test_what_reaches_further_is_refused(spark: SparkSession, text: str) -> None:
    with pytest.raises(StatementError, match="through agents"):
        check_untrusted(spark, text)


@pytest.mark.parametrize("text", ["", "SELEC 1", "SELECT * FROM a b c d"])
def test_what_is_no_sql_is_sparks_to_complain_of(spark: SparkSession, text: str) -> None:
    with pytest.raises(ParseException):
        check_untrusted(spark, text)


def test_every_function_of_this_spark_was_decided_on(spark: SparkSession) -> None:
    """A new release may bring functions in groups that nobody has looked at."""
    jvm = spark._jvm
    assert jvm is not None
    analysis = jvm.org.apache.spark.sql.catalyst.analysis
    registry, tables = analysis.FunctionRegistry.builtin(), analysis.TableFunctionRegistry.builtin()
    names = registry.listFunction()
    groups: dict[str, set[str]] = {}
    for index in range(names.size()):
        group = registry.lookupFunction(names.apply(index)).get().getGroup()
        groups.setdefault(group, set()).add(names.apply(index).funcName())
    assert groups.keys() - FUNCTION_GROUPS == {"misc_funcs", "protobuf_funcs"}
    assert groups["misc_funcs"] - FUNCTIONS == {
        *("reflect", "java_method", "try_reflect", "user", "current_user", "session_user", "spark_partition_id"),
        *("current_catalog", "current_database", "current_schema", "current_path", "input_file_name"),
        *("input_file_block_start", "input_file_block_length"),
    }
    found = tables.listFunction()
    assert {found.apply(index).funcName() for index in range(found.size())} - TABLE_FUNCTIONS == {"python_worker_logs"}
