"""Needs: a PySpark that is too old is told of in a sentence, not by an import that fails."""

import pyspark
import pytest

import streamhouse.spark
from pyspark_streamhouse import DefaultSource
from streamhouse.errors import Misconfigured
from streamhouse.spark.runtime.launch import check_pyspark

SAID = r"too old; version=4\.0\.1 needs=4\.3 do=pip install"


@pytest.mark.parametrize("version", ["4.3.0", "4.3.0.dev0", "4.10.1", "5.0.0"])
def test_a_pyspark_that_is_new_enough_will_do(version: str) -> None:
    check_pyspark(version)


@pytest.mark.parametrize("name", ["open_session", "register"])
def test_an_old_pyspark_is_reported_before_a_session_is_made(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.0.1")
    monkeypatch.delitem(vars(streamhouse.spark), name, raising=False)
    with pytest.raises(Misconfigured, match=SAID):
        getattr(streamhouse.spark, name)


def test_a_source_that_an_old_spark_found_by_itself_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.0.1")
    with pytest.raises(Misconfigured, match=SAID):
        DefaultSource({"topic": "orders"}).schema()
