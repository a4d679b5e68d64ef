"""Shell completion: `--install-completion` in a home of its own, then a real shell that completes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_S = 60
BIN = Path(sys.executable).parent


def shell(home: Path, *command: str, name: str = "bash") -> str:
    environment = {
        "HOME": str(home),
        "SHELL": shutil.which(name) or "",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "TERM": "dumb",
    }
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=True, cwd=home
    ).stdout


COMPLETES = """
source ~/.bashrc
COMP_WORDS=({words}) COMP_CWORD={last} COMP_LINE="{words}" COMP_POINT=${{#COMP_LINE}}
_streamhouse_completion streamhouse
echo "${{COMPREPLY[@]}}"
"""


def completions(home: Path, words: str) -> list[str]:
    script = COMPLETES.format(words=words, last=len(words.split()) - 1)
    return shell(home, "bash", "--norc", "-c", script).split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_after_the_installation(tmp_path: Path) -> None:
    shell(tmp_path, "bash", "--norc", "-c", "streamhouse --install-completion; true")
    assert completions(tmp_path, "streamhouse trans") == ["transactions"]
    assert completions(tmp_path, "streamhouse topics cr") == ["create"]
    assert "--partitions" in completions(tmp_path, "streamhouse topics create --part")


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_asks_the_command(tmp_path: Path, name: str) -> None:
    environment = {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "_STREAMHOUSE_COMPLETE": f"source_{name}",
    }
    script = subprocess.run(
        [str(BIN / "streamhouse")], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=True
    ).stdout
    assert f"complete_{name}" in script
