"""Dashboards and alerts: every query names metrics that an agent has, and every alert says what to do."""

import json
import re
from pathlib import Path

import pytest
import yaml

from streamhouse.config import AgentSettings, GrpcSettings, HttpSettings, KafkaSettings, Settings
from tests.wire.http.conftest import running
from tools.dashboards import ALERTS, DASHBOARDS, FOLDER, PROMETHEUS_RULE, dashboard, prometheus_rule, text_of

ROOT = Path(__file__).parents[2]
RULES = ALERTS["groups"][0]["rules"]
QUERIES = [query for name in DASHBOARDS for panel in dashboard(name)["panels"] for query in panel["targets"]]
METRIC = re.compile(r"\b(?:streamhouse|kafka|process)_[a-z0-9_]+")


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_files_are_what_the_tool_writes(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text() == text_of(name), "run: python -m tools.dashboards"
    panels = json.loads(text_of(name))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["description"] for panel in panels)


def test_kubernetes_gets_the_same_dashboards_and_rules() -> None:
    assert PROMETHEUS_RULE.read_text() == prometheus_rule(), "run: python -m tools.dashboards"
    assert yaml.safe_load(prometheus_rule())["spec"] == ALERTS
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    [dashboards] = kustomization["configMapGenerator"]
    assert dashboards["files"] == [f"{name}.json" for name in DASHBOARDS]
    assert kustomization["generatorOptions"]["labels"] == {"grafana_dashboard": "1"}
    assert kustomization["resources"] == [PROMETHEUS_RULE.name]


async def test_every_query_names_metrics_that_an_agent_has(tmp_path: Path) -> None:
    settings = Settings(
        agent=AgentSettings(data=str(tmp_path / "data")),
        kafka=KafkaSettings(listen="127.0.0.1:0"),
        http=HttpSettings(listen="127.0.0.1:0"),
        grpc=GrpcSettings(listen=""),
    )
    async with running(settings) as site:
        page = (await site.http.get("/metrics")).text
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    known = {name + end for name, kind in kinds.items() for end in _ends(kind)}
    requests = {
        name
        for query in [*(each["expr"] for each in QUERIES), *(rule["expr"] for rule in RULES)]
        for name in METRIC.findall(query)
    }
    assert len(requests) > 30
    assert sorted(requests - known) == []


def _ends(kind: str) -> tuple[str, ...]:
    match kind:
        case "histogram":
            return ("", "_bucket", "_sum", "_count")
        case "summary":
            return ("_sum", "_count")
        case _:
            return ("",)


def test_every_alert_has_its_runbook() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    assert [rule["alert"] for rule in RULES] == re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert all(rule["labels"]["severity"] in ("warning", "critical") for rule in RULES)
