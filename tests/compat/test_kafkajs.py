"""kafkajs 2, which needs node and, the first time, npm and a registry."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "kafkajs"
SESSION = Path(__file__).with_name("kafkajs_session.js")


@pytest.fixture
def modules() -> Path:
    """node_modules with kafkajs in it, kept in a folder that git ignores."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    found = CACHE / "node_modules"
    if not (found / "kafkajs" / "package.json").exists():
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed, and kafkajs is not in .cache")
        CACHE.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--prefix", str(CACHE), "--no-audit", "--no-fund", "--silent", "kafkajs@2"]
        if subprocess.run(command, capture_output=True, timeout=120, check=False).returncode != 0:
            pytest.skip("npm could not install kafkajs")
    return found


def test_kafkajs_administers_produces_and_fetches(modules: Path, bootstrap: str, topic: str) -> None:
    """One test, so that workers that share the cache folder don't install into it at the same time."""
    command = ["node", str(SESSION), str(modules), bootstrap, topic]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert (told["created"], told["listed"], told["gone"]) == (True, True, True)
    assert told["sent"] == [{"baseOffset": "0", "errorCode": 0}, {"baseOffset": "3", "errorCode": 0}]
    once = [("k", "v", ["h"]), (None, "no key", []), ("no value", None, [])]
    assert told["records"] == [
        {"offset": str(offset), "key": key, "value": value, "headers": headers}
        for offset, (key, value, headers) in enumerate(once * 2)
    ]
    assert told["offsets"] == [
        {"partition": 0, "offset": "6", "high": "6", "low": "0"},
        {"partition": 1, "offset": "0", "high": "0", "low": "0"},
    ]
    assert told["byTime"] == [{"partition": 0, "offset": "0"}, {"partition": 1, "offset": "0"}]
