"""Log lines: events with fields, that no client can forge."""

import json
import logging

from streamhouse.telemetry import JsonFormatter, TextFormatter


def record(text: str, **fields: object) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text, "levelname": "INFO", "name": "streamhouse.broker", **fields})


def test_a_line_shows_the_event_and_its_fields() -> None:
    line = TextFormatter().format(record("segment published", key="segments/1", bytes=42))
    assert line.endswith("info    segment published  key=segments/1 bytes=42")


def test_a_clients_string_cannot_forge_a_line() -> None:
    line = TextFormatter().format(record("connection closed", client="x\n12:00:00 error agent stopped\x1b[2J"))
    assert "\n" not in line
    assert "\x1b" not in line


def test_a_long_field_is_cut() -> None:
    assert len(TextFormatter().format(record("odd", body="x" * 100_000))) < 1000


def test_machines_get_one_object_per_line() -> None:
    event = json.loads(JsonFormatter().format(record("segment published", key="a\nb")))
    assert event["event"] == "segment published"
    assert event["level"] == "info"
    assert event["key"] == "a\\nb"
