"""The table of APIs, and the page that is made of it."""

import re

import pytest

from streamhouse.wire.kafka import handlers
from streamhouse.wire.kafka.api_registry import APIS, UNSUPPORTED, Api, describe
from streamhouse.wire.kafka.messages import REQUESTS, UNSERVED
from tools.protocol_support import PAGE


def test_the_page_is_what_the_handlers_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == describe(), "stale: run `make docs`"


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_handlers_docstring_names_its_key_and_versions(api: Api) -> None:
    head = re.match(r"(\w+), API key (\d+), versions (\d+)-(\d+): ", api.about)
    assert head is not None
    assert head.groups() == (api.name, str(api.key), str(api.first), str(api.last))
    assert [word for word in ("Behaviour", "Left out", "Versions") if f"\n{word} " not in api.about] == []


def test_an_api_is_served_or_left_out_for_a_reason() -> None:
    assert set(APIS) == set(REQUESTS)
    assert set(UNSERVED.values()) == set(UNSUPPORTED)
    assert not set(UNSERVED) & set(REQUESTS)


def test_every_handler_serves_something() -> None:
    assert len(APIS) == len(handlers.__all__)


# Highest versions that clients of 2026 ask for; each must find its own or a lower one.
CLIENTS = {
    "java 4.x, admin": {21: 2, 29: 3, 32: 4, 35: 5, 37: 3, 43: 2, 44: 1, 45: 1, 46: 0, 48: 1, 60: 2, 74: 1, 75: 0},
    "librdkafka 2.x, admin": {21: 1, 29: 1, 30: 1, 31: 1, 32: 1, 33: 2, 37: 0, 43: 2, 44: 1, 50: 0, 51: 0},
    "java 4.x": {0: 13, 1: 17, 2: 10, 3: 13, 18: 4, 19: 7, 20: 6, 22: 5, 23: 4},
    "librdkafka 2.x": {0: 10, 1: 16, 2: 7, 3: 13, 18: 3, 19: 4, 20: 1, 22: 4, 23: 2},
    "java 4.x, groups": {8: 10, 9: 10, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 15: 6, 16: 5, 42: 2, 47: 0, 69: 1},
    "librdkafka 2.x, groups": {8: 9, 9: 9, 10: 2, 11: 5, 12: 3, 13: 1, 14: 3, 15: 4, 16: 4, 42: 1, 47: 0},
    "java 4.x, transactions": {0: 13, 10: 6, 22: 5, 24: 3, 25: 4, 26: 5, 27: 2, 28: 6, 61: 0, 65: 0, 66: 2},
    "librdkafka 2.x, transactions": {0: 10, 10: 2, 22: 4, 24: 0, 25: 0, 26: 1, 28: 3},
    "kafkajs 2, transactions": {10: 1, 22: 1, 24: 1, 25: 1, 26: 1, 28: 1},
    "kafkajs 2, groups": {8: 5, 9: 4, 10: 1, 11: 5, 12: 3, 13: 3, 14: 3, 15: 2, 16: 3, 42: 1},
    "kafkajs 2": {0: 7, 1: 11, 2: 3, 3: 6, 18: 2, 19: 3, 20: 1, 22: 1},
}


@pytest.mark.parametrize("client", CLIENTS)
def test_what_clients_negotiate_is_served(client: str) -> None:
    assert [key for key, highest in CLIENTS[client].items() if not APIS[key].handles(highest)] == []


def test_the_newer_group_protocol_is_not_offered() -> None:
    assert 68 not in APIS
