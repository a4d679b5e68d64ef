"""Writes what is generated in deploy/monitoring: Grafana's dashboards (*.json) from the panels in panels.yaml, and the
alert rules of alerts.yaml as an object of the Prometheus operator. The Helm chart gets copies, because a chart can't
read files outside of its folder.

    python -m tools.dashboards

Every panel says what it shows, in which unit, and by which queries; tests check that agents have the metrics.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).parents[1] / "deploy" / "monitoring"
ALERT_RULES: Final = FOLDER / "alerts.yaml"
PROMETHEUS_RULE: Final = FOLDER / "prometheus-rule.yaml"
CHART_FOLDER: Final = Path(__file__).parents[1] / "deploy" / "helm" / "streamhouse" / "monitoring"
WRAP: Final = 120
WIDTH, HEIGHT, COLUMNS = 12, 8, 24
SCHEMA_VERSION: Final = 39


DASHBOARDS: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "panels.yaml").read_text())
ALERTS: Final[dict[str, Any]] = yaml.safe_load(ALERT_RULES.read_text())


def dashboard(name: str) -> dict[str, Any]:
    panels = DASHBOARDS[name]["panels"]
    return {
        "uid": f"streamhouse-{name}",
        "title": DASHBOARDS[name]["title"],
        "tags": ["streamhouse"],
        "schemaVersion": SCHEMA_VERSION,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }


def _panel(number: int, panel: Mapping[str, Any]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    per_row = COLUMNS // WIDTH
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel["title"],
        "description": panel["about"],
        "datasource": source,
        "gridPos": {"x": number % per_row * WIDTH, "y": number // per_row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.get("unit", "short"), "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend, "datasource": source}
            for at, (legend, query) in enumerate(panel["queries"].items())
        ],
    }


def text_of(name: str) -> str:
    return json.dumps(dashboard(name), indent=2) + "\n"


def prometheus_rule() -> str:
    manifest = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "streamhouse"},
        "spec": ALERTS,
    }
    text: str = yaml.safe_dump(manifest, sort_keys=False, width=WRAP)
    return f"# Generated from alerts.yaml by `make docs`.\n{text}"


def main() -> int:
    for folder in (FOLDER, CHART_FOLDER):
        folder.mkdir(parents=True, exist_ok=True)
        for name in DASHBOARDS:
            (folder / f"{name}.json").write_text(text_of(name))
    PROMETHEUS_RULE.write_text(prometheus_rule())
    (CHART_FOLDER / ALERT_RULES.name).write_text(ALERT_RULES.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
