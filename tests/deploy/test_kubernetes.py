"""The manifests: what Kubernetes accepts, and what an agent needs to be killed, moved and multiplied without loss."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from prometheus_client import CollectorRegistry

from streamhouse.config import Settings, anonymous_listeners, load_settings
from streamhouse.config.secrets import read_secrets
from streamhouse.wire.http.routes import health

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
BASE, EXAMPLE = FOLDER / "base", FOLDER / "example"
VERSIONS = ("1.30", "1.34", kubernetes_validate.latest_version())
GIB = 2**30

Manifest = dict[str, Any]


def read(path: Path) -> Manifest:
    [manifest] = yaml.safe_load_all(path.read_text())
    assert isinstance(manifest, dict)
    return manifest


FILES = [path for path in sorted(FOLDER.glob("*/*.yaml")) if path.name != "kustomization.yaml"]
MANIFESTS = {f"{path.parent.name}/{path.name}": read(path) for path in FILES}


def the(kind: str, name: str = "streamhouse") -> Manifest:
    [result] = [
        manifest
        for key, manifest in MANIFESTS.items()
        if key.startswith("base/") and (manifest["kind"], manifest["metadata"]["name"]) == (kind, name)
    ]
    return result


POD: Manifest = the("Deployment")["spec"]["template"]
[AGENT] = POD["spec"]["containers"]


def agent_environment() -> dict[str, str]:
    """What an agent of the example finds: variables of the manifest win over those of the maps, as in Kubernetes."""
    result: dict[str, str] = {}
    for name in ("base/settings.yaml", "example/store.yaml", "example/secrets.yaml"):
        result |= MANIFESTS[name].get("data", {}) | MANIFESTS[name].get("stringData", {})
    for variable in AGENT["env"]:
        result[variable["name"]] = variable.get("value", "10.1.2.3").replace("$(POD_IP)", "10.1.2.3")
    return result


@pytest.fixture
def settings() -> Settings:
    return load_settings({}, agent_environment())


# --- what Kubernetes says -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", MANIFESTS)
def test_kubernetes_knows_every_field(name: str, version: str) -> None:
    kubernetes_validate.validate(MANIFESTS[name], version, strict=True)


def test_the_schemas_refuse_a_field_that_does_not_exist() -> None:
    wrong = {**the("Service"), "spce": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("folder", [BASE, EXAMPLE], ids=lambda folder: folder.name)
def test_a_kustomization_names_every_file_and_only_those(folder: Path) -> None:
    kustomization = read(folder / "kustomization.yaml")
    named = [*kustomization["resources"], *(patch["path"] for patch in kustomization.get("patches", []))]
    assert all((folder / name).exists() for name in named)
    own = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
    assert own == {name for name in named if not name.startswith("../")}


# --- who finds whom -----------------------------------------------------------------------------------------------


def test_everything_selects_the_agents() -> None:
    labels = POD["metadata"]["labels"].items()
    selectors = [
        the("Deployment")["spec"]["selector"]["matchLabels"],
        the("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        the("Service")["spec"]["selector"],
        the("Service", "streamhouse-agents")["spec"]["selector"],
        *(spread["labelSelector"]["matchLabels"] for spread in POD["spec"]["topologySpreadConstraints"]),
    ]
    assert all(selector and selector.items() <= labels for selector in selectors)


def test_services_and_probes_name_ports_that_the_agent_has() -> None:
    ports = {port["name"]: port["containerPort"] for port in AGENT["ports"]}
    for name in ("streamhouse", "streamhouse-agents"):
        assert all(ports[port["targetPort"]] == port["port"] for port in the("Service", name)["spec"]["ports"])
    assert {probe["httpGet"]["port"] for probe in probes()} == {"http"}


def test_one_service_has_an_address_and_the_other_has_those_of_the_agents() -> None:
    assert "clusterIP" not in the("Service")["spec"]
    assert the("Service", "streamhouse-agents")["spec"]["clusterIP"] == "None"


def test_maps_and_secrets_that_the_agent_requests_are_there() -> None:
    sources = [next(iter(source.values()))["name"] for source in AGENT["envFrom"]]
    names = {m["metadata"]["name"] for m in MANIFESTS.values() if m["kind"] in ("ConfigMap", "Secret")}
    assert set(sources) == names
    assert POD["spec"]["serviceAccountName"] == the("ServiceAccount")["metadata"]["name"]


# --- agents that keep nothing -------------------------------------------------------------------------------------


def test_agents_have_no_disk() -> None:
    assert {manifest["kind"] for manifest in MANIFESTS.values()}.isdisjoint({"StatefulSet", "PersistentVolumeClaim"})
    assert "volumes" not in POD["spec"]
    assert "volumeMounts" not in AGENT


def test_an_agent_starts_with_the_settings_of_the_example(settings: Settings) -> None:
    assert settings.wal.kind == "object"
    assert settings.metadata.url.startswith("postgresql://")
    assert settings.store.url.startswith("s3://")
    assert AGENT["args"] == ["up"]


def test_an_agent_listens_everywhere_and_is_known_by_the_address_of_its_pod(settings: Settings) -> None:
    ports = {port["name"]: port["containerPort"] for port in AGENT["ports"]}
    for name, section in (("kafka", settings.kafka), ("http", settings.http)):
        assert section.listen == f"0.0.0.0:{ports[name]}"
        assert section.advertise == f"10.1.2.3:{ports[name]}"
    assert settings.grpc.listen == f"0.0.0.0:{ports['grpc']}"
    names = [variable["name"] for variable in AGENT["env"]]
    assert names.index("POD_IP") < names.index("STREAMHOUSE_KAFKA_ADVERTISE")  # else it would not be filled in


def test_clients_log_in_and_access_rules_decide(settings: Settings) -> None:
    assert anonymous_listeners(settings) == {}
    assert settings.security.authorization == "acls"
    secrets = read_secrets(settings, agent_environment())
    assert secrets.cluster_secret
    assert secrets.bootstrap_password
    public = MANIFESTS["base/settings.yaml"]["data"]
    assert not {"CLUSTER_SECRET", "ADMIN_PASSWORD"} & public.keys()


def test_kubernetes_adds_no_variables_that_the_agent_would_refuse() -> None:
    assert POD["spec"]["enableServiceLinks"] is False


def test_agents_have_no_rights() -> None:
    pod, container = POD["spec"]["securityContext"], AGENT["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] > 0
    assert container["readOnlyRootFilesystem"] is True
    assert container["allowPrivilegeEscalation"] is False
    assert container["capabilities"] == {"drop": ["ALL"]}
    assert POD["spec"]["automountServiceAccountToken"] is False


def test_the_memory_of_a_pod_holds_the_budgets_of_the_settings(settings: Settings) -> None:
    budgets = settings.buffer.memory_bytes + settings.fetch.cache_bytes + settings.kafka.max_inflight_bytes
    limit = AGENT["resources"]["limits"]["memory"]
    assert limit.endswith("Gi")
    assert int(limit.removesuffix("Gi")) * GIB >= budgets + GIB // 4
    assert AGENT["resources"]["requests"]["memory"] == limit


# --- coming and going ---------------------------------------------------------------------------------------------


def probes() -> Iterator[Manifest]:
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        yield AGENT[name]


def test_probes_ask_for_paths_that_the_agent_serves() -> None:
    served = {each.path for each in health.operations(None, CollectorRegistry())}  # type: ignore[arg-type]
    paths = [probe["httpGet"]["path"] for probe in probes()]
    assert paths == ["/health/live", "/health/live", "/health/ready"]
    assert {*paths, POD["metadata"]["annotations"]["prometheus.io/path"]} <= served


def test_an_agent_has_time_to_hand_over(settings: Settings) -> None:
    [word, seconds] = AGENT["lifecycle"]["preStop"]["exec"]["command"]
    assert word == "sleep"
    needed_s = int(seconds) + settings.agent.longest_stop_s
    assert POD["spec"]["terminationGracePeriodSeconds"] >= needed_s + 10


def test_an_update_adds_an_agent_before_it_takes_one_away() -> None:
    assert the("Deployment")["spec"]["replicas"] == 3
    assert the("Deployment")["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert the("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_there_are_3_to_50_agents_by_the_cpu_that_they_use() -> None:
    spec = the("HorizontalPodAutoscaler")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 50)
    [metric] = spec["metrics"]
    assert metric["resource"]["name"] == "cpu"
    assert "cpu" in AGENT["resources"]["requests"]  # of which the target is a share
    target = spec["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", the("Deployment")["metadata"]["name"])
