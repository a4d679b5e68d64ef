"""Java takes the archive of Spark's classes where there is one, and says nothing where it doesn't fit."""

import subprocess
from pathlib import Path

import pytest

from streamhouse.spark.runtime.java import java_home
from tests.support import java_options


def said(options: str) -> list[str]:
    command = [str(java_home() / "bin" / "java"), *options.split(), "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return (done.stdout + done.stderr).replace(", sharing", "").splitlines()  # without its own archive, too


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(java_options, "ARCHIVE", place := tmp_path / "spark-classes.jsa")
    return place


def test_without_an_archive_none_is_named(place: Path) -> None:
    assert java_options.spark_options() == java_options.BRIEF
    place.touch()  # what is left where Java wrote none
    assert java_options.spark_options() == java_options.BRIEF


def test_an_archive_that_does_not_fit_is_passed_over_in_silence(place: Path) -> None:
    place.write_bytes(b"of another Java" * 1000)
    assert str(place) in java_options.spark_options()
    assert said(java_options.spark_options()) == said(java_options.BRIEF)
