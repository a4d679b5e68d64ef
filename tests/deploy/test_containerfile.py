"""The container file: only locked dependencies, no root rights, and the agent gets SIGTERM."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy" / "Containerfile").read_text()
LINES = TEXT.replace("\\\n", " ").splitlines()
BUILD, RUN = "\n".join(LINES).split("\nFROM ")[1:]


def test_every_download_is_checked_against_the_lock() -> None:
    installs = re.findall(r"pip (?:install|wheel) ([^&\n]*)", BUILD)
    assert len(installs) == 4
    assert all("--require-hashes" in install or "--no-deps" in install for install in installs)
    for name in re.findall(r"-r (\S+)", BUILD):
        assert "--hash=sha256:" in (ROOT / name).read_text()


def test_what_is_copied_is_there_and_not_ignored() -> None:
    sources = [word for words in re.findall(r"^COPY (?!--)(.*) \S+$", BUILD, re.MULTILINE) for word in words.split()]
    assert set(sources) >= {"pyproject.toml", "setup.py", "README.md", "src"}
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for source in sources:
        assert (ROOT / source).exists()
        assert any(Path(source).match(pattern) for pattern in kept), source


def test_the_compiler_stays_behind_and_so_does_root() -> None:
    assert "apt-get" not in RUN
    [user] = re.findall(r"^USER (\d+):\d+$", RUN, re.MULTILINE)
    pod = yaml.safe_load((ROOT / "deploy/kubernetes/base/deployment.yaml").read_text())["spec"]["template"]["spec"]
    assert int(user) == pod["securityContext"]["runAsUser"] > 0


def test_the_agent_is_the_process_that_gets_the_signals() -> None:
    assert 'ENTRYPOINT ["streamhouse"]' in RUN  # a list: no shell in between
    assert 'CMD ["up"]' in RUN
