"""Man pages: made from the commands, and installed with the package."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from streamhouse.cli.main import COMMANDS
from tools.man_pages import FOLDER, escape, render_pages

ROOT = Path(__file__).parents[2]


def test_the_pages_are_those_of_the_commands() -> None:
    stored = {path.name: path.read_text() for path in FOLDER.glob("*.1")}
    assert stored == render_pages(), "run: python -m tools.man_pages"
    assert set(stored) == {"streamhouse.1", *(f"streamhouse-{name}.1" for name in COMMANDS)}


def test_a_package_installs_them_where_man_looks(tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "--quiet", "install_data", "--install-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=60)
    installed = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.1")}
    assert installed == {f"share/man/man1/{path.name}" for path in FOLDER.glob("*.1")}


def test_text_is_never_taken_for_a_request() -> None:
    assert escape(".SH\n'x\n--a\\b …") == "\\&.SH\n\\&'x\n\\-\\-a\\eb \\[u2026]"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_nothing_to_say_about_them() -> None:
    for path in sorted(FOLDER.glob("*.1")):
        shown = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-P-cbou", str(path)],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        assert shown.stderr == ""
        assert "SYNOPSIS" in shown.stdout
