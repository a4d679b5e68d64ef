"""The SQL that readers of the documentation write is right, also that of pages that run nightly."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.validation import validate
from tests.docs.pages import PAGES, name_of, sql_files
from tests.spark.query.fakes import FakeBackend

pytestmark = pytest.mark.spark

FILES = [(name_of(page), text) for page in PAGES for text in sql_files(page) if "CREATE TABLE" in text]
"""Those that declare what they read. Else columns are inferred from records, which only a page that runs has."""


def test_pages_have_files_of_sql() -> None:
    assert {name for name, _ in FILES} >= {"docs/pipelines.md", "docs/materialised-views.md"}


@pytest.mark.parametrize("text", [text for _, text in FILES], ids=[Path(name).stem for name, _ in FILES])
def test_the_sql_of_a_page_is_bound(spark: SparkSession, text: str) -> None:
    checked = validate(spark, Catalog("nowhere:1", backend=FakeBackend()), text)
    assert [problem for each in checked for problem in each.problems] == []
    assert len(checked) > 1
