"""kafkajs goes back to an end of the log by committing -1 or -2."""

import json
import shutil
import subprocess
from pathlib import Path

SESSION = Path(__file__).with_name("kafkajs_recovery.js")


def test_kafkajs_recovers_from_an_offset_out_of_range(kafkajs: Path, group_bootstrap: str, topic: str) -> None:
    command = [shutil.which("node") or "node", str(SESSION), str(kafkajs), group_bootstrap, topic]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == {"seen": ["0", "1", "2"], "reset": ["-2"]}
