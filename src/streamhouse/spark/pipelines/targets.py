"""Targets: what a pipeline writes to is there, and known as a table, before the first row comes.

Data path   building -> **targets** -> agents: topics, table definitions, last commits
Owns        topics that are made; the definition that a topic gets from the columns of the rows it is given
Leaves      rows to the connectors

A definition that somebody wrote stays as it is; one that came from this pipeline follows the pipeline's columns.
"""

from typing import Any
from urllib.parse import quote

import msgspec
from pyspark.sql import DataFrame

from streamhouse.client.http import Answer
from streamhouse.errors import Rejected
from streamhouse.format.statement_options import PipelineOptions
from streamhouse.model.table import MADE_BY, Connector, Table
from streamhouse.spark.agents import told_why
from streamhouse.spark.connectors.topic_sink import topic_of
from streamhouse.spark.pipelines.asking import ask
from streamhouse.spark.pipelines.checkpoints import Before
from streamhouse.spark.pipelines.jobs import Job


class Targets:
    def __init__(self, agents: str) -> None:
        self._agents = agents

    def topic(self, job: Job, found: Table | None, frame: DataFrame, options: PipelineOptions) -> Table:
        """The target as a table over a topic that exists."""
        table = found or Table(name=job.target, connector=Connector.TOPIC)
        self.ensure_topic(topic_of(table), options.partitions)
        if table.text is None and options.fmt == "json":
            self._define(job, table, frame)
        return table

    def ensure_topic(self, name: str, partitions: int | None = None) -> None:
        body = {"name": name} if partitions is None else {"name": name, "partitions": partitions}
        answer = self._asked("POST", "/v1/topics", body)
        if answer.status >= 400 and self._asked("GET", f"/v1/topics/{_quoted(name)}").status != 200:
            raise Rejected(f"a topic can't be made; topic={name} why={told_why(answer)}")

    def last_commit(self, query_id: str) -> Before:
        answer = self._asked("GET", f"/v1/commits/{query_id}")
        if answer.status >= 400:
            return Before()
        told = msgspec.json.decode(answer.content)
        return Before(epoch=told["epoch"], progress=told["progress"])

    def _define(self, job: Job, table: Table, frame: DataFrame) -> None:
        """Say which columns its records have, unless somebody said so, or a registered schema does."""
        path = f"/v1/tables/{_quoted(table.name)}"
        answer = self._asked("GET", path)
        told = msgspec.json.decode(answer.content) if answer.status == 200 else {}
        if told.get("columns") is not None and (told.get("options") or {}).get(MADE_BY) != job.name:
            return
        columns = [{"name": each.name, "type": each.dataType.simpleString()} for each in _own(frame)]
        if columns == told.get("columns"):
            return
        body = {
            "connector": Connector.TOPIC.value,
            "columns": columns,
            "key": list(job.key),
            "options": {"format": "json", MADE_BY: job.name},
            "text": None,
        }
        self._asked("PUT", path, body)  # without it, columns are inferred from records

    def _asked(self, method: str, path: str, body: Any = None) -> Answer:
        return ask(self._agents, method, path, body)


def _own(frame: DataFrame) -> list[Any]:
    return [each for each in frame.schema.fields if not each.name.startswith("_")]


def _quoted(name: str) -> str:
    return quote(name, safe="")
