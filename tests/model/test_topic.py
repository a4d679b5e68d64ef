"""Topic settings: names, ranges, defaults."""

import pytest

from streamhouse.errors import InvalidConfig
from streamhouse.model.topic import TOPIC_SETTINGS, parse_topic_config


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
        ("cleanup.policy", ""),
        ("retention.bytes", str(2**63)),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        parse_topic_config({name: value})


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(InvalidConfig, match=r"retention\.hours"):
        parse_topic_config({"retention.hours": "1"})


def test_both_policies_can_be_in_force() -> None:
    config = parse_topic_config({"cleanup.policy": "compact, delete"})
    assert config.deletes
    assert config.compacts
