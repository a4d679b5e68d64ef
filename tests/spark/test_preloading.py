"""preloading: Spark's Python is Python, with more in it where it forks."""

import subprocess
import sys
from pathlib import Path

import pytest

from streamhouse.spark.preloading import preload, python_for_spark, quietly


def run(script: Path, *arguments: str) -> str:
    return subprocess.run([script, *arguments], capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def test_the_script_is_the_same_python(tmp_path: Path) -> None:
    script = python_for_spark(tmp_path)
    assert run(script, "-c", "import sys; print(sys.prefix, sys.argv)", "a b") == f"{sys.prefix} ['-c', 'a b']"


def test_it_can_be_made_again_while_it_is_used(tmp_path: Path) -> None:
    assert python_for_spark(tmp_path) == python_for_spark(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["python"]


def test_what_a_task_needs_is_there_before_it_forks() -> None:
    program = (
        "import sys, streamhouse.spark.preloading as p; p.preload('pyspark.worker');"
        "print('streamhouse.spark.reading' in sys.modules, 'pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_what_is_not_there_is_left_to_whoever_needs_it() -> None:
    preload("streamhouse_has_no_such_module")


def test_only_a_reader_that_hung_up_is_kept_quiet() -> None:
    def fail(_: object) -> None:
        raise ValueError("a real one")

    with pytest.raises(ValueError, match="a real one"):
        quietly(fail)(None)
