"""guests: who comes through an agent can ask, and reaches nothing of the worker's machine."""

import pytest

from streamhouse.errors import StatementError
from streamhouse.spark.sql.announcing import reachable
from streamhouse.spark.sql.guests import check_guest


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "(SELECT 1) UNION (SELECT 2)",
        "with a as (select 1) select * from a",
        "SELECT transform(array(1), x -> x + 1)",
        "SELECT * FROM a JOIN b USING (id)",
        "SELECT 'reflect', 'INSERT INTO'",
        "-- insert\nDESCRIBE orders",
        "EXPLAIN SELECT 1",
    ],
)
def test_questions_are_let_through(text: str) -> None:
    check_guest(text)


@pytest.mark.parametrize(
    "text",
    [
        "SET spark.sql.ansi.enabled = false",
        "ADD JAR '/tmp/x.jar'",
        "CREATE FUNCTION f AS 'X' USING JAR '/tmp/x.jar'",
        "INSERT OVERWRITE DIRECTORY '/tmp/x' SELECT 1",
        "WITH a AS (SELECT 1) INSERT INTO b SELECT * FROM a",
        "FROM a INSERT INTO b SELECT * INSERT INTO c SELECT *",
        "SELECT reflect('java.lang.System', 'getenv')",
        "SELECT `Java_Method`('java.lang.System', 'getenv')",
        "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'getenv')",
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "EXPLAIN INSERT INTO b SELECT 1",
        "SELECT TRANSFORM (id) USING 'cat' FROM a",
        'SELECT TRANSFORM (id) USING /* here */ "cat" FROM a',
        "BEGIN SELECT 1; END",
        "",
    ],
)
def test_what_reaches_further_is_refused(text: str) -> None:
    with pytest.raises(StatementError, match="through agents"):
        check_guest(text)


@pytest.mark.parametrize(
    ("host", "agents", "can"),
    [
        ("127.0.0.1", "127.0.0.1:8080,localhost:8081", True),
        ("127.0.0.1", "127.0.0.1:8080,10.0.0.5:8080", False),
        ("10.0.0.9", "10.0.0.5:8080", True),
        ("::1", "agents.example:8080", False),
    ],
)
def test_agents_are_told_of_a_worker_that_they_can_reach(host: str, agents: str, can: bool) -> None:
    assert reachable(host, agents) is can
