"""franz-go and @platformatic/kafka log in over TLS with each mechanism.

Both need a registry the first time, and franz-go a minute of compiling: they run nightly. `test_secure_clients` runs
with every change.
"""

import fcntl
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.support.secure_agent import PASSWORD, SECRET, SecureAgent

pytestmark = pytest.mark.slow

HERE: Final = Path(__file__).parent
CACHE: Final = HERE.parents[1] / ".cache" / "secure-sessions"
MECHANISMS: Final = ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"]
PLATFORMATIC: Final = "@platformatic/kafka@1.35.0"
FRANZ: Final = "github.com/twmb/franz-go@v1.22.2"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureAgent]:
    secure = SecureAgent(tmp_path_factory.mktemp("secure"), "SASL_SSL")
    with secure.live:
        yield secure
    assert PASSWORD not in secure.live.output
    assert SECRET not in secure.live.output


@pytest.fixture(scope="module", params=["platformatic", "franz-go"])
def session(request: pytest.FixtureRequest) -> list[str]:
    """The command of a client; what it needs is kept in a folder that git ignores."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _platformatic() if request.param == "platformatic" else _franz()


def _platformatic() -> list[str]:
    module = CACHE / "node_modules" / "@platformatic" / "kafka" / "dist" / "index.js"
    if not module.exists():
        _install(["npm", "install", "--prefix", str(CACHE), "--no-audit", "--no-fund", "--silent", PLATFORMATIC])
    return ["node", str(HERE / "platformatic_session.mjs"), str(module)]


def _franz() -> list[str]:
    program = CACHE / "franz-session"
    if not program.exists():
        folder = CACHE / "franz"
        folder.mkdir(exist_ok=True)
        shutil.copy(HERE / "franz_session.go", folder / "main.go")
        (folder / "go.mod").write_text("module session\n\ngo 1.24\n")
        _install(["go", "get", FRANZ], folder)
        _install(["go", "mod", "tidy"], folder)
        _install(["go", "build", "-o", str(program), "."], folder)
    return [str(program)]


def _install(command: Sequence[str], folder: Path = CACHE) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    environment = {**os.environ, "GOFLAGS": "-mod=mod"}
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=300, check=False, env=environment)
    if done.returncode != 0:
        pytest.skip(f"{command[0]} could not install the client")


def run(session: list[str], agent: SecureAgent, mechanism: str, secret: str) -> subprocess.CompletedProcess[str]:
    arguments = [agent.live.bootstrap, str(agent.ca), mechanism, "admin", secret, f"t{uuid.uuid4().hex[:8]}"]
    return subprocess.run([*session, *arguments], capture_output=True, text=True, timeout=90, check=False)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_record_goes_in_and_out(session: list[str], agent: SecureAgent, mechanism: str) -> None:
    ran = run(session, agent, mechanism, agent.token() if mechanism == "OAUTHBEARER" else PASSWORD)
    assert (ran.returncode, ran.stdout.strip()) == (0, "value"), ran.stderr


def test_a_wrong_password_is_reported(session: list[str], agent: SecureAgent) -> None:
    assert run(session, agent, "SCRAM-SHA-512", "wrong").returncode != 0
