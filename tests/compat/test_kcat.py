"""kcat, which is librdkafka as people use it in a shell."""

import json
import shutil
import subprocess

import pytest

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed")


def kcat(bootstrap: str, *arguments: str, send: str | None = None) -> str:
    assert KCAT is not None
    command = [KCAT, "-b", bootstrap, "-m", "20", *arguments]
    return subprocess.run(command, input=send, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out(bootstrap: str, topic: str, codec: str) -> None:
    lines = "".join(f"k{n}:value {n}\n" for n in range(500))
    kcat(bootstrap, "-P", "-t", topic, "-K:", "-z", codec, "-H", "source=test", send=lines)
    out = kcat(bootstrap, "-C", "-t", topic, "-e", "-q", "-o", "beginning", "-f", "%o %k:%s %h\n")
    assert out.splitlines() == [f"{n} k{n}:value {n} source=test" for n in range(500)]


def test_reading_begins_at_an_offset_or_at_the_end(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, send="a\nb\nc\nd\n")
    assert kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-e", "-q", "-o", "2") == "c\nd\n"
    assert kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-e", "-q", "-o", "-1") == "d\n"


def test_topics_are_listed(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, send="a\n")
    listed = json.loads(kcat(bootstrap, "-L", "-J"))
    (described,) = [each for each in listed["topics"] if each["topic"] == topic]
    assert [part["partition"] for part in described["partitions"]] == [0]


def test_offsets_by_time_are_found(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, send="a\nb\n")
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:0") == f"{topic} [0] offset 0\n"


def test_an_idempotent_producer_delivers(bootstrap: str, topic: str) -> None:
    lines = "".join(f"{n}\n" for n in range(1000))
    kcat(bootstrap, "-P", "-t", topic, "-X", "enable.idempotence=true", "-X", "acks=all", send=lines)
    assert kcat(bootstrap, "-C", "-t", topic, "-e", "-q") == lines


def test_a_producer_without_acks_delivers(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-L", "-t", topic)
    lines = "".join(f"{n}\n" for n in range(1000))
    kcat(bootstrap, "-P", "-t", topic, "-X", "acks=0", send=lines)
    assert kcat(bootstrap, "-C", "-t", topic, "-e", "-q").splitlines()[-1:] == ["999"]
