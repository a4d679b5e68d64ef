"""config show."""

import json

from tests.cli.conftest import Run


def test_every_setting_is_shown_with_value_source_and_meaning(run: Run) -> None:
    with open("streamhouse.toml", "w") as file:
        file.write("[flush]\nage_s = 3\n")
    text = run("config", "show", env={"STREAMHOUSE_TOPICS_AUTO_CREATE": "no"}).stdout
    lines = {line.split()[0]: line for line in text.splitlines()}
    assert lines["flush.age_s"].split()[1:4] == ["3", "streamhouse.toml:", "[flush]"]
    assert lines["topics.auto_create"].split()[1:3] == ["false", "STREAMHOUSE_TOPICS_AUTO_CREATE"]
    assert "67108864 (64.0 MiB)" in lines["flush.segment_bytes"]
    assert lines["wal.fsync"].split()[1:3] == ["interval", "default"]
    assert "metadata store: sqlite" in lines["metadata.url"]


def test_settings_as_json(run: Run) -> None:
    results = {s["name"]: s for s in json.loads(run("config", "show", "--json").stdout)}
    assert results["wal.fsync"] == {
        "name": "wal.fsync",
        "value": "interval",
        "default": "interval",
        "source": "default",
        "where": "",
        "variable": "STREAMHOUSE_WAL_FSYNC",
        "allowed": "always, interval or never",
        "about": results["wal.fsync"]["about"],
    }


def test_another_file_can_be_named(run: Run) -> None:
    assert "settings file not found; where=gone.toml" in run("config", "show", "--config", "gone.toml").stderr
