"""An installation without its C extensions is slow, and says so."""

import logging

import pytest

from streamhouse.agent import run_agent
from streamhouse.config import load_settings
from streamhouse.errors import Misconfigured
from streamhouse.format import extensions


def test_an_extension_that_was_not_built_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "EXTENSIONS", ("streamhouse.format.records", "streamhouse.format._never_built"))
    assert extensions.missing_extensions() == ("streamhouse.format._never_built",)


def test_nothing_missing_is_no_warning() -> None:
    assert extensions.extension_warning(()) == ""


async def test_an_agent_without_extensions_warns_when_it_starts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(extensions, "EXTENSIONS", ("streamhouse.format._never_built",))
    monkeypatch.setattr("streamhouse.agent.configure_logging", lambda **_: None)
    settings = load_settings({"store.url": "unknown://bucket"}, {}, None)
    with caplog.at_level(logging.WARNING), pytest.raises(Misconfigured):
        await run_agent(settings, on_ready=lambda _: None)
    (line,) = [each.message for each in caplog.records if "C extensions" in each.message]
    assert "missing=streamhouse.format._never_built" in line
    assert "do=install a C compiler" in line
