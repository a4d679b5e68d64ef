"""Topic settings: names, ranges, defaults."""

import pytest

from streamhouse.errors import InvalidConfig
from streamhouse.model.topic import check_topic_config, parse_topic_config
from streamhouse.model.topic_settings import TOPIC_SETTINGS


def test_without_settings_the_defaults_hold() -> None:
    config = parse_topic_config({})
    assert config.retention_ms == 7 * 24 * 3600 * 1000
    assert config.max_message_bytes == 1048588
    assert config.deletes
    assert not config.compacts
    assert not config.log_append_time


def test_every_default_passes_its_own_check() -> None:
    for setting in TOPIC_SETTINGS.values():
        setting.parse(setting.default)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("max.message.bytes", "-1"),
        ("message.timestamp.type", "createtime"),
        ("cleanup.policy", "burn"),
        ("cleanup.policy", "delete,delete"),
        ("retention.ms", "1_000"),
        ("retention.ms", "9" * 10_000),
        ("segment.bytes", "1.5"),
        ("min.cleanable.dirty.ratio", "2"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("preallocate", "yes"),
        ("compression.type", "lzma"),
        ("remote.storage.enable", "on"),
        ("leader.replication.throttled.replicas", "0:1,all"),
        ("leader.replication.throttled.replicas", "*,0:1"),
        ("local.retention.ms", "-3"),
        ("streamhouse.replication.factor", "0"),
        ("streamhouse.replication.factor", "33"),
        ("retention.bytes", str(2**63)),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        parse_topic_config({name: value})


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(InvalidConfig, match=r"retention\.hours"):
        parse_topic_config({"retention.hours": "1"})


def test_a_misspelt_setting_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(InvalidConfig, match=r"did you mean retention\.ms\?"):
        parse_topic_config({"retention.msec": "1"})


def test_a_hostile_name_or_value_makes_no_long_text() -> None:
    for overrides in ({"x" * 1_000_000: "1"}, {"retention.ms": "x" * 1_000_000}):
        with pytest.raises(InvalidConfig) as refused:
            parse_topic_config(overrides)
        assert len(str(refused.value)) < 300


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms"):
        parse_topic_config({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"})


def test_without_a_policy_records_stay_forever() -> None:
    config = parse_topic_config({"cleanup.policy": ""})
    assert not config.deletes
    assert not config.compacts


def test_a_setting_without_effect_says_so() -> None:
    honoured = parse_topic_config({})
    for name in ("compression.type", "segment.bytes", "flush.ms", "min.insync.replicas"):
        assert "without effect" in TOPIC_SETTINGS[name].about
        assert parse_topic_config({name: TOPIC_SETTINGS[name].default}) == honoured


def test_both_policies_can_be_in_force() -> None:
    config = parse_topic_config({"cleanup.policy": "compact, delete"})
    assert config.deletes
    assert config.compacts


def test_other_defaults_hold_where_a_topic_says_nothing() -> None:
    defaults = {"retention.ms": "5", "cleanup.policy": "compact", "max.message.bytes": "7"}
    config = parse_topic_config({"retention.ms": "9"}, defaults)
    assert (config.retention_ms, config.max_message_bytes, config.compacts, config.deletes) == (9, 7, True, False)
    assert parse_topic_config({}, defaults).retention_ms == 5


def test_defaults_that_contradict_a_topics_own_settings_are_refused_for_new_ones_alone() -> None:
    own, defaults = {"min.compaction.lag.ms": "10"}, {"max.compaction.lag.ms": "5"}
    assert parse_topic_config(own, defaults).deletes
    with pytest.raises(InvalidConfig, match="contradict"):
        check_topic_config(own, defaults)
