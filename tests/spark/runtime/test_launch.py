"""The settings and the environment that a Spark is started with."""

import sys
from pathlib import Path

import pytest

from streamhouse.errors import Misconfigured
from streamhouse.spark.datasource import read_options, write_options
from streamhouse.spark.datasource.read_options import chosen_agents
from streamhouse.spark.runtime import default_agents, launch
from streamhouse.spark.runtime.launch import (
    as_defaults,
    explained_settings,
    plan_launch,
    spark_environment,
    spark_home,
    spark_settings,
)
from streamhouse.spark.runtime.python_worker import python_for_spark
from tests.spark.runtime.test_java import make_java

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"
SECRET = "hush-hush"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"JAVA_HOME": str(make_java(tmp_path / "java", "17")), "AWS_SECRET_ACCESS_KEY": SECRET, "PATH": "/bin"}


def test_micro_batches_are_quick_and_filters_narrow_reads() -> None:
    settings = spark_settings()
    assert settings["spark.python.unix.domain.socket.enabled"] == "true"
    assert settings["spark.sql.python.filterPushdown.enabled"] == "true"
    assert not [name for name in settings if "AGENTS" in name]


def test_agents_are_told_to_drivers_wherever_they_run() -> None:
    result = {name: value for name, value in spark_settings("a:1,b:2").items() if name.endswith("STREAMHOUSE_AGENTS")}
    assert len(result) == 3
    assert set(result.values()) == {"a:1,b:2"}


def test_each_line_of_the_file_is_a_setting_or_its_reason() -> None:
    lines = as_defaults(explained_settings("a:1")).splitlines()
    settings = dict(line.split(" ", 1) for line in lines if not line.startswith("# "))
    assert settings == spark_settings("a:1")
    assert lines[0].startswith("# ")
    assert len(lines) == len(set(lines))


def test_the_users_arguments_come_behind_ours_and_so_win(environ: dict[str, str]) -> None:
    planned = plan_launch("submit", ["--conf", "spark.sql.shuffle.partitions=3", "job.py", "x"], environ, agents="a:1")
    assert planned.command[0] == str(spark_home() / "bin" / "spark-submit")
    assert planned.command[-4:] == ("--conf", "spark.sql.shuffle.partitions=3", "job.py", "x")
    assert "spark.sql.shuffle.partitions=8" in planned.command[:-4]
    assert plan_launch("shell", [], environ, agents=None).command[0] == str(spark_home() / "bin" / "pyspark")


def test_credentials_are_in_the_environment_and_nowhere_else(environ: dict[str, str]) -> None:
    planned = plan_launch("submit", ["job.py"], environ, agents="a:1")
    assert planned.environment["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert SECRET not in " ".join(planned.command)
    assert SECRET not in repr(planned)


def test_the_environment_has_java_and_this_python_and_the_agents(environ: dict[str, str]) -> None:
    made = spark_environment(environ, agents="a:1")
    assert made["JAVA_HOME"] == environ["JAVA_HOME"]
    assert made["PYSPARK_PYTHON"] == made["PYSPARK_DRIVER_PYTHON"] == python_for_spark()
    assert made["STREAMHOUSE_AGENTS"] == "a:1"


@pytest.mark.parametrize(
    ("arguments", "is_ours"),
    [
        (["--master", "local[4]", "job.py"], True),
        (["--conf", "spark.master=local", "job.py"], True),
        (["--master", "spark://host:7077", "job.py"], False),
        (["--master=yarn", "job.py"], False),
        (["--conf", "spark.master=k8s://host", "job.py"], False),
        (["--properties-file", "mine.conf", "job.py"], False),
    ],
)
def test_processes_on_other_machines_are_started_with_python_itself(
    arguments: list[str], is_ours: bool, environ: dict[str, str]
) -> None:
    made = plan_launch("submit", arguments, environ, agents=None).environment
    assert made["PYSPARK_PYTHON"] == (python_for_spark() if is_ours else sys.executable)


def test_a_spark_of_one_machine_listens_on_loopback(environ: dict[str, str]) -> None:
    alone = {None: "127.0.0.1", "local[4]": "127.0.0.1", "spark://host:7077": None, "yarn": None}
    assert {master: spark_environment(environ, master=master).get("SPARK_LOCAL_IP") for master in alone} == alone
    assert spark_environment({**environ, "SPARK_LOCAL_IP": "10.0.0.1"})["SPARK_LOCAL_IP"] == "10.0.0.1"


def test_settings_of_another_folder_may_name_other_machines(environ: dict[str, str]) -> None:
    made = spark_environment({**environ, "SPARK_CONF_DIR": "/etc/spark"})
    assert made["PYSPARK_PYTHON"] == sys.executable


def test_another_python_may_be_named_and_another_spark_is_not_mixed_in(environ: dict[str, str]) -> None:
    given = {**environ, "PYSPARK_PYTHON": "/opt/python", "SPARK_HOME": "/opt/spark-3"}
    made = plan_launch("shell", [], given, agents=None).environment
    assert made["PYSPARK_PYTHON"] == "/opt/python"
    assert made["SPARK_HOME"] == str(spark_home())


def test_a_pyspark_without_a_spark_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "SCRIPTS", {"submit": "gone"})
    with pytest.raises(Misconfigured, match="do=pip install"):
        spark_home()


def test_agents_that_nobody_names_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMHOUSE_AGENTS", raising=False)
    assert chosen_agents({}) == default_agents() == "localhost:8080"
    monkeypatch.setenv("STREAMHOUSE_AGENTS", "a:1,b:2")
    assert chosen_agents({}) == default_agents() == "a:1,b:2"


@pytest.mark.parametrize(("section", "known"), [("Reading", read_options._KNOWN), ("Writing", write_options._KNOWN)])
def test_the_page_has_every_option_in_its_table(section: str, known: tuple[str, ...]) -> None:
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    cells = " ".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    assert [name for name in known if f"`{name}`" not in cells] == []


def test_declarative_pipelines_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "NEEDED", ("yaml", "no_such_package", "no_such.package"))
    with pytest.raises(Misconfigured, match=r"missing=no_such_package,no_such\.package do=pip install") as raised:
        launch.check_declarative()
    assert "pyspark[connect,pipelines]" in str(raised.value)
