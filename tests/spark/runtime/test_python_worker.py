"""preloading: Spark's Python is Python, with more in it where it forks."""

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from streamhouse.spark.runtime.python_worker import preload, python_for_spark, quietly, without_archive

HOME = Path(pyspark.__file__).parent
PACKED = [
    str(HOME / "python/lib/pyspark.zip"),
    str(HOME / "python/lib/py4j-src.zip"),
    str(HOME / "jars/spark-core.jar"),
]


def run(*arguments: str, paths: list[str] | None = None, cwd: Path | None = None) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths or [])}
    command = [python_for_spark(), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment, cwd=cwd)
    return done.stdout.strip()


def test_the_script_is_the_same_python() -> None:
    assert Path(python_for_spark()).name == "streamhouse-spark-python"
    assert run("-c", "import sys; print(sys.prefix, sys.argv)", "a b") == f"{sys.prefix} ['-c', 'a b']"


def test_a_module_is_found_where_python_was_started_and_gets_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import sys; print(__name__, sys.argv[1:])")
    assert run("-m", "mine", "a b", cwd=tmp_path) == "__main__ ['a b']"


def test_programs_import_the_installed_pyspark_and_not_the_archive_of_it(tmp_path: Path) -> None:
    program = "import pyspark, py4j; print(pyspark.__file__, py4j.__file__)"
    (tmp_path / "mine.py").write_text(program)
    assert ".zip" not in run("-m", "mine", paths=PACKED, cwd=tmp_path)
    assert ".zip" not in run("-c", program, paths=PACKED)


def test_the_archive_of_another_spark_is_what_spark_wants(tmp_path: Path) -> None:
    other = tmp_path / "spark" / "python" / "lib"
    other.mkdir(parents=True)
    with zipfile.ZipFile(other / "pyspark.zip", "w") as archive:
        archive.writestr("pyspark/__init__.py", "__version__ = 'another'")
    (tmp_path / "mine.py").write_text("import pyspark; print(pyspark.__version__)")
    assert run("-m", "mine", paths=[str(other / "pyspark.zip")], cwd=tmp_path) == "another"


def test_what_a_user_put_on_the_path_stays_in_its_place(tmp_path: Path) -> None:
    site = str(HOME.parent)
    mine = [str(tmp_path / "lib.zip"), str(tmp_path)]
    assert without_archive([*PACKED, *mine, site]) == [*mine, site]
    assert without_archive([*mine, site]) == [*mine, site]
    assert without_archive([*PACKED, *mine]) == [*PACKED, *mine]  # no other pyspark than that in the archive


def test_without_the_script_it_is_python_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / name))
    assert python_for_spark() == str(tmp_path / "python")


def test_what_a_task_needs_is_there_before_it_forks() -> None:
    program = (
        "import sys, streamhouse.spark.runtime.python_worker as p; p.preload('pyspark.worker');"
        "print('streamhouse.spark.datasource.split_reader' in sys.modules, 'pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_what_is_not_there_is_left_to_its_user() -> None:
    preload("streamhouse_has_no_such_module")


class HungUp(io.BytesIO):
    def flush(self) -> None:
        raise BrokenPipeError


def leave(_: object) -> None:
    sys.exit(-1)  # as pyspark's workers do when they could not say what went wrong


def test_a_reader_that_hung_up_is_not_worth_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    quietly(leave)(HungUp())
    assert codes == [1]


def test_other_ends_and_errors_are_what_they_were() -> None:
    with pytest.raises(SystemExit):
        quietly(leave)(io.BytesIO())

    def fail(_: object) -> None:
        raise ValueError("a real one")

    with pytest.raises(ValueError, match="a real one"):
        quietly(fail)(io.BytesIO())
