"""Settings: precedence, friendly forms, and errors that name the place."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from streamhouse.config import (
    FLAGS,
    MIB,
    Address,
    Settings,
    describe_settings,
    explain_settings,
    load_settings,
    parse_address,
)
from streamhouse.errors import Misconfigured


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "streamhouse.toml") -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def refusal(
    flags: dict[str, object] | None = None, environ: dict[str, str] | None = None, path: Path | None = None
) -> str:
    with pytest.raises(Misconfigured) as caught:
        load_settings(flags or {}, environ or {}, path)
    return str(caught.value)


def test_without_anything_the_defaults_hold() -> None:
    assert load_settings({}, {}, None) == Settings()


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() -> None:
    write('[wal]\nfsync = "never"\nfsync_interval_ms = 7\nfile_bytes = 1000\n[flush]\nage_s = 3\n')
    environ = {"STREAMHOUSE_WAL_FSYNC": "interval", "STREAMHOUSE_WAL_FSYNC_INTERVAL_MS": "8"}
    settings = load_settings({"wal.fsync": "always"}, environ, None)
    assert settings.wal.fsync == "always"
    assert settings.wal.fsync_interval_ms == 8
    assert settings.wal.file_bytes == 1000
    assert settings.flush.age_s == 3.0
    assert settings.flush.segment_bytes == 64 * MIB


def test_a_flag_that_is_none_was_not_given() -> None:
    assert load_settings({"wal.fsync": None}, {"STREAMHOUSE_WAL_FSYNC": "never"}, None).wal.fsync == "never"


def test_an_empty_variable_was_not_given() -> None:
    assert load_settings({}, {"STREAMHOUSE_KAFKA_LISTEN": ""}, None) == Settings()


def test_variables_of_others_are_left_alone() -> None:
    assert load_settings({}, {"PATH": "/bin", "STREAMHOUSES": "2", "_STREAMHOUSE_COMPLETE": "x"}, None) == Settings()


def test_the_file_is_named_by_argument_then_by_variable_then_found_in_the_folder() -> None:
    write("[flush]\nage_s = 1\n")
    by_variable = write("[flush]\nage_s = 2\n", "two.toml")
    by_argument = write("[flush]\nage_s = 3\n", "three.toml")
    environ = {"STREAMHOUSE_CONFIG": str(by_variable)}
    assert load_settings({}, {}, None).flush.age_s == 1
    assert load_settings({}, environ, None).flush.age_s == 2
    assert load_settings({}, environ, by_argument).flush.age_s == 3


@pytest.mark.parametrize(
    ("variable", "text", "path", "value"),
    [
        ("STREAMHOUSE_WAL_FILE_BYTES", "64MiB", "wal.file_bytes", 64 * MIB),
        ("STREAMHOUSE_WAL_FILE_BYTES", "1.5 kB", "wal.file_bytes", 1500),
        ("STREAMHOUSE_WAL_FILE_BYTES", "1_000", "wal.file_bytes", 1000),
        ("STREAMHOUSE_WAL_FSYNC_INTERVAL_MS", "2s", "wal.fsync_interval_ms", 2000),
        ("STREAMHOUSE_LEASE_TTL_S", "5min", "lease.ttl_s", 300.0),
        ("STREAMHOUSE_FLUSH_AGE_S", "250ms", "flush.age_s", 0.25),
        ("STREAMHOUSE_FLUSH_AGE_S", "0.5", "flush.age_s", 0.5),
        ("STREAMHOUSE_TOPICS_AUTO_CREATE", "off", "topics.auto_create", False),
        ("STREAMHOUSE_TOPICS_DEFAULT_PARTITIONS", "3", "topics.default_partitions", 3),
        ("STREAMHOUSE_KAFKA_LISTEN", "[::1]:0", "kafka.listen", "[::1]:0"),
    ],
)
def test_texts_become_what_the_field_holds(variable: str, text: str, path: str, value: object) -> None:
    section, _, name = path.partition(".")
    assert getattr(getattr(load_settings({}, {variable: text}, None), section), name) == value
    assert getattr(getattr(load_settings({path: text}, {}, None), section), name) == value


@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("STREAMHOUSE_WAL_FSYNC", "alway", "allowed=always, interval or never; did you mean always?"),
        ("STREAMHOUSE_WAL_FILE_BYTES", "64M", "allowed=a whole number above 0, or text such as 64MiB"),
        ("STREAMHOUSE_WAL_FILE_BYTES", "0", "allowed=a whole number above 0"),
        ("STREAMHOUSE_WAL_FILE_BYTES", "30s", "allowed=a whole number above 0"),
        ("STREAMHOUSE_WAL_FSYNC_INTERVAL_MS", "0.5", "allowed=a whole number above 0, or text such as 100ms"),
        ("STREAMHOUSE_FLUSH_AGE_S", "nan", "allowed=a number above 0, or text such as 30s"),
        ("STREAMHOUSE_FLUSH_AGE_S", "1e999", "allowed=a number above 0"),
        ("STREAMHOUSE_BUFFER_THROTTLE_AT", "1.5", "allowed=a number above 0 up to 1"),
        ("STREAMHOUSE_TOPICS_AUTO_CREATE", "maybe", "allowed=true or false"),
        ("STREAMHOUSE_KAFKA_LISTEN", "9092", "allowed=HOST:PORT"),
        ("STREAMHOUSE_KAFKA_LISTEN", "::1:9092", "allowed=HOST:PORT"),
        ("STREAMHOUSE_KAFKA_LISTEN", "localhost:70000", "allowed=HOST:PORT"),
    ],
)
def test_a_bad_text_is_refused_with_its_variable_and_what_is_allowed(variable: str, text: str, allowed: str) -> None:
    said = refusal(environ={variable: text})
    assert f"where={variable} value={text!r} {allowed}" in said


@pytest.mark.parametrize("path", FLAGS)
def test_a_bad_flag_is_named_as_it_was_typed(path: str) -> None:
    assert f"where={FLAGS[path]} " in refusal({path: 3})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[wall]\n", "unknown section; where=streamhouse.toml: [wall]; did you mean wal?"),
        ('[wal]\nfsnyc = "never"\n', "unknown setting; where=streamhouse.toml: [wal] fsnyc; did you mean fsync?"),
        ("[store]\nzzz = 1\n", "where=streamhouse.toml: [store] zzz allowed=url"),
        ("wal = 3\n", "a section must be a table; where=streamhouse.toml: wal"),
        ("[wal]\nfsync = 3\n", "where=streamhouse.toml: [wal] fsync value=3 allowed=always, interval or never"),
        ("[wal]\nfile_bytes = 1.5\n", "where=streamhouse.toml: [wal] file_bytes value=1.5 allowed=a whole number"),
        ("[wal]\nfile_bytes = true\n", "where=streamhouse.toml: [wal] file_bytes value=True allowed=a whole number"),
        ("[flush]\nage_s = inf\n", "where=streamhouse.toml: [flush] age_s value=inf allowed=a number above 0"),
        ("[topics]\nauto_create = 1\n", "[topics] auto_create value=1 allowed=true or false"),
        ("[wal\n", "settings file is not TOML; where=streamhouse.toml why="),
    ],
)
def test_a_bad_file_is_refused_with_its_key(text: str, said: str) -> None:
    write(text)
    assert said in refusal()


def test_bytes_that_are_not_text_are_no_settings_file() -> None:
    Path("streamhouse.toml").write_bytes(b"\xff\xfe")
    assert "settings file is not TOML; where=streamhouse.toml" in refusal()


def test_a_named_file_must_be_there() -> None:
    assert "settings file not found; where=nowhere.toml" in refusal(path=Path("nowhere.toml"))
    assert "settings file not found; where=gone.toml" in refusal(environ={"STREAMHOUSE_CONFIG": "gone.toml"})


def test_an_unknown_variable_with_the_prefix_is_refused_with_the_nearest_name() -> None:
    said = refusal(environ={"STREAMHOUSE_WAL_FSINC": "never"})
    assert "where=STREAMHOUSE_WAL_FSINC; did you mean STREAMHOUSE_WAL_FSYNC?" in said


def test_an_unknown_flag_setting_is_refused_with_the_nearest_name() -> None:
    assert "where=--set wal.fsink; did you mean wal.fsync?" in refusal({"wal.fsink": "never"})


def test_a_lease_must_outlive_two_heartbeats() -> None:
    assert "lease.ttl_s" in refusal({"lease.ttl_s": 15})
    assert "flush.retry_max_s" in refusal({"flush.retry_s": 60})


def test_every_setting_is_explained_with_value_source_and_meaning() -> None:
    write("[flush]\nage_s = 3\n")
    explained = {
        e.name: e for e in explain_settings({"wal.fsync": "always"}, {"STREAMHOUSE_HTTP_LISTEN": "0.0.0.0:80"}, None)
    }
    assert all(e.about and e.allowed and e.variable.startswith("STREAMHOUSE_") for e in explained.values())
    assert (explained["wal.fsync"].value, explained["wal.fsync"].source) == ("always", "flag")
    assert explained["wal.fsync"].where == "--fsync"
    assert explained["http.listen"].source == "environment"
    assert explained["http.listen"].where == "STREAMHOUSE_HTTP_LISTEN"
    assert (explained["flush.age_s"].value, explained["flush.age_s"].source) == (3.0, "file")
    assert explained["flush.age_s"].where == "streamhouse.toml: [flush] age_s"
    assert explained["flush.check_s"].source == "default"
    sections = len(set(Settings.__struct_fields__) - {"origins"})
    assert len({name.partition(".")[0] for name in explained}) == sections


def test_a_password_in_a_url_is_not_explained() -> None:
    flags = {"metadata.url": "postgresql://ann:secret@db:5432/facts"}
    assert load_settings(flags, {}, None).metadata.url.count("secret") == 1
    explained = {e.name: e for e in explain_settings(flags, {}, None)}
    assert explained["metadata.url"].value == "postgresql://ann:***@db:5432/facts"


def test_an_address_goes_both_ways() -> None:
    for text in ("127.0.0.1:9092", "[::1]:0", "kafka.example:65535"):
        assert str(parse_address(text)) == text
    assert parse_address("[::1]:80") == Address("::1", 80)


@pytest.mark.parametrize("name", ["STREAMHOUSE_AGENTS", "STREAMHOUSE_SQL_FOLDER", "STREAMHOUSE_CONNECTION_SHOP"])
def test_variables_of_commands_and_spark_are_no_settings(name: str) -> None:
    assert load_settings({}, {name: "x"}) == load_settings({}, {})


def test_a_running_agent_knows_where_its_settings_are_from(tmp_path: Path) -> None:
    file = tmp_path / "streamhouse.toml"
    file.write_text('[flush]\nage_s = "5s"\n')
    loaded = load_settings({"wal.fsync": "always"}, {"STREAMHOUSE_LEASE_TTL_S": "40"}, file)
    started = replace(loaded, store=replace(loaded.store, url="file:///chosen"))
    explained = {each.name: (each.source, each.where) for each in describe_settings(started)}
    assert explained["wal.fsync"] == ("flag", "--fsync")
    assert explained["lease.ttl_s"] == ("environment", "STREAMHOUSE_LEASE_TTL_S")
    assert explained["flush.age_s"] == ("file", f"{file}: [flush] age_s")
    assert explained["store.url"] == ("agent", "by the agent")
    assert explained["http.listen"] == ("default", "")
