"""kafkajs commits records and offsets together."""

import json
import shutil
import subprocess
from pathlib import Path

SESSION = Path(__file__).with_name("kafkajs_transactions.js")


def test_kafkajs_commits_aborts_and_is_replaced(kafkajs: Path, group_bootstrap: str, topic: str) -> None:
    command = [shutil.which("node") or "node", str(SESSION), str(kafkajs), group_bootstrap, topic]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    response = json.loads(ran.stdout.splitlines()[-1])
    assert response == {"seen": ["a", "c"], "replaced": "INVALID_PRODUCER_EPOCH", "committed": ["7"]}
