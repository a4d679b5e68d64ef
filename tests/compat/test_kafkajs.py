"""kafkajs 2, which needs node and, the first time, npm and a registry."""

import json
import subprocess
from pathlib import Path

SESSION = Path(__file__).with_name("kafkajs_session.js")


def test_kafkajs_administers_produces_and_fetches(kafkajs: Path, bootstrap: str, topic: str) -> None:
    command = ["node", str(SESSION), str(kafkajs), bootstrap, topic]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert ran.returncode == 0, ran.stderr
    response = json.loads(ran.stdout.splitlines()[-1])
    assert (response["created"], response["listed"], response["gone"]) == (True, True, True)
    assert response["sent"] == [{"baseOffset": "0", "errorCode": 0}, {"baseOffset": "3", "errorCode": 0}]
    once = [("k", "v", ["h"]), (None, "no key", []), ("no value", None, [])]
    assert response["records"] == [
        {"offset": str(offset), "key": key, "value": value, "headers": headers}
        for offset, (key, value, headers) in enumerate(once * 2)
    ]
    assert response["offsets"] == [
        {"partition": 0, "offset": "6", "high": "6", "low": "0"},
        {"partition": 1, "offset": "0", "high": "0", "low": "0"},
    ]
    assert response["byTime"] == [{"partition": 0, "offset": "0"}, {"partition": 1, "offset": "0"}]
