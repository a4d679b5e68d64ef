"""Groups through kafkajs and kcat."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.compat.test_kcat import KCAT, kcat

SESSION = Path(__file__).with_name("kafkajs_group.js")


def test_kafkajs_consumers_share_a_topic(kafkajs: Path, group_bootstrap: str, topic: str) -> None:
    command = [shutil.which("node") or "node", str(SESSION), str(kafkajs), group_bootstrap, topic]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == {
        "read": 600,
        "state": "Stable",
        "members": 1,
        "type": "consumer",
        "committed": 600,
        "ends": 600,
        "left": 0,
    }


@pytest.mark.skipif(KCAT is None, reason="kcat is not installed")
def test_kcat_reads_on_where_its_group_was(group_bootstrap: str, topic: str) -> None:
    def read(group: str, *more: str) -> list[str]:
        return kcat(group_bootstrap, "-G", group, "-q", "-X", "auto.offset.reset=earliest", *more, topic).split()

    kcat(group_bootstrap, "-P", "-t", topic, send="a\nb\nc\n")
    assert read(topic, "-c", "2") == ["a", "b"]
    kcat(group_bootstrap, "-P", "-t", topic, send="d\n")
    assert read(topic, "-e") == ["c", "d"]
    assert read(topic, "-e") == []
    assert read(f"{topic}-other", "-e") == ["a", "b", "c", "d"]
