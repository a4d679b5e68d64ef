"""The Helm chart: it installs what the kustomization installs, with settings, dashboards and rules that exist."""

import shutil
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from streamhouse.config import Settings, anonymous_listeners, load_settings
from streamhouse.config.secrets import read_secrets
from tests.deploy.test_kubernetes import BASE, VERSIONS, Manifest, agent_environment, read
from tools.dashboards import ALERTS, CHART_FOLDER, DASHBOARDS, FOLDER
from tools.helm_chart import CHART, INSTALLATIONS, digest, render, rendered_of

OPERATOR = "monitoring.coreos.com/v1"
RENDERED: dict[str, list[Manifest]] = {
    name: [each for each in yaml.safe_load_all(rendered_of(name).read_text()) if each] for name in INSTALLATIONS
}
OBJECTS = [(name, manifest) for name, manifests in RENDERED.items() for manifest in manifests]


def the(installation: str, kind: str, name: str = "streamhouse") -> Manifest:
    [result] = [each for each in RENDERED[installation] if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return result


def pod_of(installation: str) -> Manifest:
    pod: Manifest = the(installation, "Deployment")["spec"]["template"]
    return pod


def agent_of(installation: str) -> Manifest:
    [agent] = pod_of(installation)["spec"]["containers"]
    return agent  # type: ignore[no-any-return]


def environment_of(installation: str) -> dict[str, str]:
    """What an agent finds; secrets that the chart doesn't make are those of the example."""
    result = dict(agent_environment())
    if installation == "default":
        result = dict(the(installation, "Secret", "streamhouse-secrets")["stringData"])
    result |= the(installation, "ConfigMap", "streamhouse-settings")["data"]
    for variable in agent_of(installation)["env"]:
        result[variable["name"]] = variable.get("value", "10.1.2.3").replace("$(POD_IP)", "10.1.2.3")
    return result


def settings_of(installation: str) -> Settings:
    return load_settings({}, environment_of(installation))


# --- what helm made of it


@pytest.mark.parametrize("installation", INSTALLATIONS)
def test_the_rendered_files_are_of_this_chart(installation: str) -> None:
    first, *_ = rendered_of(installation).read_text().splitlines()
    assert first.endswith(digest(installation)), "run: python -m tools.helm_chart"


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
@pytest.mark.parametrize("installation", INSTALLATIONS)
def test_helm_renders_the_chart_like_this(installation: str) -> None:
    def parsed(text: str) -> list[Any]:
        return list(yaml.safe_load_all(text))

    assert parsed(render(installation)) == parsed(rendered_of(installation).read_text())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("installation", "manifest"),
    [each for each in OBJECTS if each[1]["apiVersion"] != OPERATOR],
    ids=lambda each: each if isinstance(each, str) else f"{each['kind']}-{each['metadata']['name']}",
)
def test_kubernetes_knows_every_field(installation: str, manifest: Manifest, version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


# --- the same as the kustomization


def without_labels(each: Any) -> Any:
    """Without labels and selectors, which name the release, and without the checksums of the chart's pods."""
    match each:
        case dict():
            names = {"labels", "matchLabels", "annotations", "selector"}
            return {name: without_labels(value) for name, value in each.items() if name not in names}
        case list():
            return [without_labels(value) for value in each]
        case _:
            return each


def test_the_defaults_install_what_the_kustomization_installs() -> None:
    files = [read(path) for path in sorted(BASE.glob("*.yaml")) if path.name != "kustomization.yaml"]
    for manifest in files:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        own, base = without_labels(the("default", kind, name)), without_labels(manifest)
        if kind == "Deployment":
            base["spec"].pop("replicas")  # the autoscaler decides
            [container] = base["spec"]["template"]["spec"]["containers"]
            container |= {"image": "registry.example/streamhouse:0.1.0", "imagePullPolicy": "IfNotPresent"}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                container[probe]["httpGet"]["scheme"] = "HTTP"
        if kind == "Service" and name == "streamhouse":
            base["spec"]["type"] = "ClusterIP"
        if kind == "ConfigMap":
            base["data"] |= {"STREAMHOUSE_STORE_URL": "s3://my-bucket/streamhouse", "AWS_REGION": "eu-central-1"}
        assert own == base, (kind, name)
    kinds = {each["kind"] for each in RENDERED["default"]}
    assert kinds == {each["kind"] for each in files} | {"Secret"}


@pytest.mark.parametrize("installation", INSTALLATIONS)
def test_everything_selects_the_agents(installation: str) -> None:
    labels = pod_of(installation)["metadata"]["labels"].items()
    selectors = [
        the(installation, "Deployment")["spec"]["selector"]["matchLabels"],
        the(installation, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        the(installation, "Service")["spec"]["selector"],
        the(installation, "Service", "streamhouse-agents")["spec"]["selector"],
        *(each["labelSelector"]["matchLabels"] for each in pod_of(installation)["spec"]["topologySpreadConstraints"]),
    ]
    assert all(selector and selector.items() <= labels for selector in selectors)


# --- what an agent finds


@pytest.mark.parametrize("installation", INSTALLATIONS)
def test_an_agent_starts_with_the_settings_and_clients_log_in(installation: str) -> None:
    settings = settings_of(installation)
    assert settings.wal.kind == "object"
    assert (settings.store.url, settings.metadata.url[:13]) == ("s3://my-bucket/streamhouse", "postgresql://")
    assert anonymous_listeners(settings) == {}
    assert settings.security.authorization == "acls"
    assert read_secrets(settings, environment_of(installation)).cluster_secret


def test_values_of_every_kind_become_settings() -> None:
    settings = settings_of("everything")
    assert settings.fetch.cache_bytes == 1 << 30
    assert settings.tracing.sample_ratio == 0.25
    assert settings.http.console_read_only is True
    assert settings.agent.zone == "eu-central-1a"


def test_secrets_that_exist_are_used_and_none_is_made() -> None:
    assert "Secret" not in {each["kind"] for each in RENDERED["everything"]}
    assert {"secretRef": {"name": "my-secrets"}} in agent_of("everything")["envFrom"]


def test_with_tls_probes_and_the_monitor_use_it() -> None:
    agent = agent_of("everything")
    probes = [agent[name]["httpGet"]["scheme"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert probes == ["HTTPS"] * 3
    [endpoint] = the("everything", "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert (endpoint["scheme"], endpoint["path"]) == ("https", "/metrics")
    assert endpoint["port"] in [port["name"] for port in agent["ports"]]
    assert endpoint["authorization"]["credentials"] == {"name": "prometheus-key", "key": "apiKey"}


# --- dashboards and alerts


def test_the_chart_has_the_dashboards_and_rules_of_the_repository() -> None:
    expected = {"alerts.yaml", *(f"{name}.json" for name in DASHBOARDS)}
    assert {path.name for path in CHART_FOLDER.iterdir()} == expected
    for name in expected:
        assert (CHART_FOLDER / name).read_text() == (FOLDER / name).read_text(), "run: python -m tools.dashboards"


@pytest.mark.parametrize("installation", INSTALLATIONS)
def test_grafana_gets_every_dashboard(installation: str) -> None:
    dashboards = the(installation, "ConfigMap", "streamhouse-dashboards")
    assert dashboards["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboards["data"] == {f"{name}.json": (FOLDER / f"{name}.json").read_text() for name in DASHBOARDS}


def test_prometheus_gets_every_rule_with_its_braces() -> None:
    rule = the("everything", "PrometheusRule")
    assert rule["spec"] == ALERTS
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert not [each for each in RENDERED["default"] if each["apiVersion"] == OPERATOR]


def test_every_value_is_used_by_a_template() -> None:
    templates = "\n".join(path.read_text() for path in (CHART / "templates").iterdir())

    def unused(values: Manifest, path: str) -> list[str]:
        names = []
        for name, value in values.items():
            is_map = isinstance(value, dict) and value and name not in ("resources", "labels")
            names += unused(value, f"{path}.{name}") if is_map else [f"{path}.{name}"]
        return [name for name in names if f".{name.rpartition('.')[2]}" not in templates]

    values = yaml.safe_load(Path(CHART / "values.yaml").read_text())
    assert unused(values, "") == []
