"""Agents that encrypt: what is on disks and in the bucket, other keys, no keys, and keys that come and go.

What is on disks is judged by `tests.support.at_rest`, which decrypts as the page says, without the product.
"""

import hashlib
import json
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cli.test_recover import consumed, files_below, produce, run
from tests.stores.test_key_services import TOKEN, Server, server
from tests.support.agent import LiveAgent
from tests.support.at_rest import decrypt_object, decrypt_wal_file, key_file, keys_of

__all__ = ["server"]

CANARY = "canary-5e11f7"
FLUSH = ("--set", "flush.age_s=0.2", "--set", "flush.check_s=0.1")
NEVER = ("--set", "flush.age_s=3600")


def encrypting(path: str) -> tuple[str, ...]:
    return ("--set", "encryption.kms=file", "--set", f"encryption.key={path}")


def canaries(first: int, end: int) -> list[str]:
    """Values that compression leaves readable, or would."""
    return [f"{CANARY} {number} {hashlib.sha256(str(number).encode()).hexdigest()}" for number in range(first, end)]


def holds_plaintext(folder: Path) -> list[str]:
    return [name for name, data in files_below(folder).items() if CANARY.encode() in data]


def started_twice_is_refused(agent: LiveAgent, *said: str) -> None:
    """The agent doesn't start, says why in one line, and leaves everything as it is."""
    before = records_below(agent.data)
    with pytest.raises(AssertionError, match="did not start"):
        agent.start()
    (line,) = [line for line in agent.output.splitlines() if "encrypted with a key" in line and "do=" in line][-1:]
    for word in said:
        assert word in line
    agent._process = None
    assert records_below(agent.data) == before


def records_below(data: Path) -> dict[str, bytes]:
    """All files but the database and locks."""
    return {name: body for name, body in files_below(data).items() if not name.startswith("metadata.db")}


@pytest.mark.parametrize("wal", ["disk", "object"])
def test_records_are_nowhere_in_plaintext_and_survive_wrong_and_missing_keys(tmp_path: Path, wal: str) -> None:
    data, keys = tmp_path / "data", tmp_path / "keys"
    flags = (*encrypting(key_file(keys, "k1")), "--wal", wal, "--set", "wal.fsync=always")
    flushed, waiting = canaries(0, 50), canaries(50, 80)
    agent = LiveAgent(data, *flags, *FLUSH)
    with agent:
        produce(agent, *flushed)
    agent = LiveAgent(data, *flags, *NEVER)
    agent.start()
    produce(agent, *waiting)
    agent.kill()
    assert holds_plaintext(data) == []
    check_by_the_page(data, wal, flushed, waiting)

    for wrong, why in ((wrong_file(tmp_path), "has another key of this id"), (str(tmp_path / "no"), "can't be read")):
        started_twice_is_refused(LiveAgent(data, *encrypting(wrong), "--wal", wal), "key_id=k1", "encryption/", why)
    started_twice_is_refused(LiveAgent(data, "--wal", wal), "key_id=k1", "no key service is set")

    with LiveAgent(data, *flags, *FLUSH) as agent:
        assert consumed(agent) == list(enumerate([*flushed, *waiting]))
    assert holds_plaintext(data) == []


def wrong_file(folder: Path) -> str:
    """A file that has another key under the same id."""
    path = Path(key_file(folder / "wrong", "k2"))
    path.write_text(path.read_text().replace("k2 ", "k1 "))
    return str(path)


def check_by_the_page(data: Path, wal: str, flushed: list[str], waiting: list[str]) -> None:
    keys = keys_of("k1")
    files = files_below(data / "objects")
    segments = {key: body for key, body in files.items() if key.startswith("segments/")}
    plain = b"".join(decrypt_object(body, key, keys)[1] for key, body in segments.items())
    assert plain.count(CANARY.encode()) >= 1  # LZ4 may have shortened the others
    if wal == "object":
        logs = [
            decrypt_object(body, key, keys)[1]
            for key, body in files.items()
            if key.startswith("wal/") and len(body) != 256
        ]
    else:
        logs = [
            batch
            for path in sorted((data / "wal").rglob("*.wal"))
            for batch in decrypt_wal_file(path.read_bytes(), keys)[1]
        ]
    for value in waiting:
        assert any(value.encode() in log for log in logs), value


def test_encryption_is_turned_on_later_keys_change_and_all_of_it_is_read(tmp_path: Path) -> None:
    data, keys = tmp_path / "data", tmp_path / "keys"
    values = canaries(0, 40)
    with LiveAgent(data, *FLUSH) as agent:
        produce(agent, *values[:10])
    assert holds_plaintext(data) != []
    with LiveAgent(data, *FLUSH, *encrypting(key_file(keys, "k1"))) as agent:
        produce(agent, *values[10:20])
    with LiveAgent(data, *FLUSH, *encrypting(key_file(keys, "k2", "k1"))) as agent:
        produce(agent, *values[20:30])
        (check,) = doctor(agent)
        assert (check["verdict"], check["figures"]) == ("ok", {"keys": 2, "missing": 0})
        assert check["text"] == "new objects are encrypted with k2; older objects may need k1"
    used = [
        decrypt_object(body, key, keys_of("k1", "k2"))[0]
        for key, body in sorted(files_below(data / "objects").items())
        if key.startswith("segments/") and body.startswith(b"STRMHENC")
    ]
    assert set(used) == {"k1", "k2"}
    off = ("--set", "encryption.new_objects=false")
    with LiveAgent(data, *FLUSH, *encrypting(str(keys)), *off) as agent:
        produce(agent, *values[30:])
        assert consumed(agent) == list(enumerate(values))
        key_file(keys, "k2")  # somebody deletes a key while an agent runs
        (check,) = doctor(agent)
        assert check["verdict"] == "ok"  # it is remembered for a while
    started_twice_is_refused(LiveAgent(data, *encrypting(str(keys))), "key_id=k1", "is not in the file")


def doctor(agent: LiveAgent) -> list[dict[str, object]]:
    done = run("doctor", "--json", "--http", agent.http)
    (result,) = json.loads(done.stdout)["agents"]
    return [check for check in result["checks"] if check["name"] == "encryption keys"]


def test_a_key_that_is_lost_while_an_agent_runs_deletes_nothing_and_comes_back(tmp_path: Path) -> None:
    """Reads of what it encrypted fail with its name, and continue when it is there again."""
    data, keys = tmp_path / "data", tmp_path / "keys"
    short = (
        "--set",
        "encryption.cached_key_s=0.5",
        "--set",
        "fetch.cache_bytes=1KiB",
        "--set",
        "retention.check_s=0.2",
    )
    values = canaries(0, 20)
    with LiveAgent(data, *FLUSH, *encrypting(key_file(keys, "k1"))) as agent:
        produce(agent, *values)
    before = files_below(data / "objects" / "segments")
    with LiveAgent(data, *FLUSH, *short, *encrypting(key_file(keys, "k2", "k1"))) as agent:
        key_file(keys, "k2")
        failed = read_fails(agent)
        assert failed.startswith("503 ")
        assert "key_id=k1" in failed
        (check,) = doctor(agent)
        assert check["verdict"] == "failure"
        assert "k1: the key is not in the file" in str(check["text"])
        key_file(keys, "k2", "k1")
        produce(agent, "more")
        assert consumed(agent) == list(enumerate([*values, "more"]))
    assert before.items() <= files_below(data / "objects" / "segments").items()
    assert not (data / "wal-damaged").exists()
    assert not (data / "objects" / "damaged").exists()


def read_fails(agent: LiveAgent) -> str:
    """What a reader is told once the key isn't remembered any more."""
    time.sleep(0.7)  # until the key that was tried at the start is forgotten
    for _ in range(40):
        try:
            with urllib.request.urlopen(f"http://{agent.http}/v1/topics/orders/partitions/0/records", timeout=20):
                time.sleep(0.1)
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.read().decode()}"
    raise AssertionError("records were read without the key")


def test_the_disk_cache_holds_no_plaintext(tmp_path: Path) -> None:
    data, cache = tmp_path / "data", tmp_path / "cache"
    flags = (*encrypting(key_file(tmp_path / "keys", "k1")), *FLUSH, "--set", f"fetch.disk_cache_path={cache}")
    values = canaries(0, 300)
    with LiveAgent(data, *flags) as agent:
        produce(agent, *values)
    with LiveAgent(data, *flags) as agent:
        assert consumed(agent) == list(enumerate(values))
        assert list(cache.rglob("*.block"))
        assert holds_plaintext(cache) == []
    with LiveAgent(data, *flags) as agent:
        assert list(cache.rglob("*.block")) == []  # their key went with the process
        assert consumed(agent) == list(enumerate(values))


def test_recover_needs_the_keys_too(tmp_path: Path) -> None:
    data, keys = tmp_path / "data", tmp_path / "keys"
    values = canaries(0, 30)
    with LiveAgent(data, *FLUSH, *encrypting(key_file(keys, "k1"))) as agent:
        assert run("topics", "create", "orders", "-b", agent.bootstrap).returncode == 0
        produce(agent, *values)
    for path in data.glob("metadata.db*"):
        path.unlink()
    before = records_below(data)
    refused = run("recover", "--apply", "--data", str(data))
    assert refused.returncode != 0
    assert "key_id=k1" in refused.stderr
    assert records_below(data) == before
    done = run("recover", "--apply", "--data", str(data), *encrypting(str(keys)))
    assert done.returncode == 0, done.stderr
    with LiveAgent(data, *FLUSH, *encrypting(str(keys))) as agent:
        assert consumed(agent) == list(enumerate(values))
    assert holds_plaintext(data) == []


def test_a_key_of_vault_is_rotated_refused_and_away_while_an_agent_runs(tmp_path: Path, server: Server) -> None:
    data, token = tmp_path / "data", tmp_path / "token"
    token.write_text(TOKEN)
    settings = {
        "kms": "vault",
        "key": "records",
        "url": server.url,
        "vault_token": f"file:{token}",
        "data_key_s": "0.5",
        "cached_key_s": "0.5",
    }
    patience = ("--set", "http.publish_timeout_s=2")
    flags = (
        *FLUSH,
        *patience,
        *(part for name, value in settings.items() for part in ("--set", f"encryption.{name}={value}")),
    )
    values = canaries(0, 30)
    agent = LiveAgent(data, *flags)
    with agent:
        produce(agent, *values[:10])
        server.version = "v2"  # rotated in the service
        time.sleep(0.6)
        produce(agent, *values[10:20])
        token.write_text("one that Vault has revoked")
        status, text = refusal(agent)
        assert (status, TOKEN in text) == (503, False)
        token.write_text(TOKEN)
        produce(agent, *values[20:])
        (check,) = doctor(agent)
        assert (check["verdict"], check["figures"]) == ("ok", {"keys": 2, "missing": 0})
        agent.kill()
    assert holds_plaintext(data) == []
    assert TOKEN not in agent.output
    with LiveAgent(data, *flags) as agent:
        read = [value for _, value in consumed(agent)]
    assert [value for value in read if value != json.dumps(PROBE)] == values
    del server.keys["v1"]
    started_twice_is_refused(LiveAgent(data, *flags), "key_id=transit/records:v1")


PROBE = "a probe"


def refusal(agent: LiveAgent) -> tuple[int, str]:
    """Status and text of the first refusal of a record."""
    body = json.dumps({"records": [{"value": PROBE}]}).encode()
    request = urllib.request.Request(
        f"http://{agent.http}/v1/topics/orders/records", data=body, headers={"content-type": "application/json"}
    )
    for _ in range(100):
        try:
            urllib.request.urlopen(request, timeout=20).close()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        time.sleep(0.05)
    raise AssertionError("records were taken without the key service")
