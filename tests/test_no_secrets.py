"""Secrets stay where they are named: canaries in every setting, variable, file and request that holds one, and a look
at everything that an agent and its commands write, show or keep, in clear, base64, hex and escaped."""

import base64
import gzip
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import confluent_kafka
import grpc
import httpx
import pytest
from cryptography.hazmat.primitives import serialization

from streamhouse.clock import SystemClock
from streamhouse.model.access import WORKER, Principal
from streamhouse.model.cluster_tokens import ClusterTokens
from tests.stores.test_key_services import TOKEN, Server
from tests.stores.test_key_services import server as vault  # noqa: F401 - a fixture
from tests.support.agent import free_port
from tests.support.certificates import make_authority

LIMIT_S = 90
CANARIES = {
    "bootstrap password": "can4ry-bootstrap-pa55",
    "cluster secret": "can4ry-cluster-secret-of-many-letters",
    "password of the TLS key": "can4ry-tls-key-pa55",
    "Vault's token": TOKEN,
    "AWS secret": "can4ry-aws-secret",
    "AWS session": "can4ry-aws-session",
    "connection": "can4ry-connection-pa55",
    "new user's password": "can4ry-user-pa55",
    "changed password": "can4ry-changed-pa55",
    "wrong password": "can4ry-wrong-pa55",
    "wrong token": "can4ry-wrong-token",
    "wrong key": "shk_can4rywrongkey_can4ry-wrong-key-secret",
    "metadata password": "can4ry-metadata-pa55",
    "worker's token": "can4ry-worker-token",
    "inline password": "can4ry-inline-pa55",
}
HARMLESS_ENVIRONMENT = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def forms(secret: str) -> Iterator[bytes]:
    raw = secret.encode()
    yield raw
    yield raw.hex().encode()
    yield quote(secret, safe="").encode()
    for shift in range(3):  # wherever in a longer text it began
        encoded = base64.b64encode(b"\0" * shift + raw)
        yield encoded[4 if shift else 0 : -4]


class Evidence:
    """What was written and shown, by where."""

    def __init__(self) -> None:
        self.found: dict[str, bytes] = {}

    def add(self, where: str, content: bytes | str) -> None:
        data = content.encode() if isinstance(content, str) else content
        self.found[where] = self.found.get(where, b"") + data

    def add_folder(self, folder: Path) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                self.add(str(path.relative_to(folder.parent)), path.read_bytes())

    def secrets(self, secrets: Mapping[str, str]) -> list[str]:
        return [
            f"{name} in {where}"
            for where, content in self.found.items()
            for name, secret in secrets.items()
            if any(form in content for form in forms(secret))
        ]


class Agent:
    """`streamhouse up`, as a user starts it, with every secret named in its settings and environment."""

    def __init__(self, folder: Path, vault_url: str) -> None:
        self.folder, self.data = folder, folder / "data"
        self.kafka, self.http, self.grpc = (f"127.0.0.1:{free_port()}" for _ in range(3))
        make_authority(folder).issue(folder, "agent")
        lock_key(folder / "agent.key", CANARIES["password of the TLS key"])
        (folder / "bootstrap").write_text(CANARIES["bootstrap password"] + "\n")
        (folder / "cluster").write_text(CANARIES["cluster secret"] + "\n")
        settings = {
            "agent.log_level": "debug",
            "kafka.protocol": "SASL_SSL",
            "http.protocol": "SASL_SSL",
            "grpc.protocol": "SASL_SSL",
            "security.authorization": "acls",
            "security.audit": "topic",
            "security.bootstrap_user": "admin",
            "security.bootstrap_password": f"file:{folder / 'bootstrap'}",
            "security.cluster_secret": f"file:{folder / 'cluster'}",
            "security.tls_certificate": str(folder / "agent.pem"),
            "security.tls_key": str(folder / "agent.key"),
            "security.tls_key_password": "env:TLS_KEY_PASSWORD",
            "security.tls_ca": str(folder / "ca.pem"),
            "encryption.kms": "vault",
            "encryption.key": "records",
            "encryption.url": vault_url,
            "flush.age_s": "0.2",
            "flush.check_s": "0.1",
        }
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("STREAMHOUSE_")
        } | {
            "TLS_KEY_PASSWORD": CANARIES["password of the TLS key"],
            "VAULT_TOKEN": CANARIES["Vault's token"],
            "AWS_ACCESS_KEY_ID": "AKIA",
            "AWS_SECRET_ACCESS_KEY": CANARIES["AWS secret"],
            "AWS_SESSION_TOKEN": CANARIES["AWS session"],
            "STREAMHOUSE_CONNECTION_SHOP": f"postgresql://shop:{CANARIES['connection']}@127.0.0.1:1/shop",
        }
        listen = ("--kafka", self.kafka, "--http", self.http, "--grpc", self.grpc)
        named = (part for key, value in settings.items() for part in ("--set", f"{key}={value}"))
        self.arguments = ["up", "--data", str(self.data), *listen, *named]
        self.log = folder / "agent.log"

    def __enter__(self) -> "Agent":
        with self.log.open("ab") as output:
            command = [sys.executable, "-X", "faulthandler", "-m", "streamhouse", *self.arguments]
            self.process = subprocess.Popen(command, env=self.environment, stdout=output, stderr=output)
        deadline = time.monotonic() + LIMIT_S
        while not self._is_ready():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(LIMIT_S)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"https://{self.http}/health/ready", verify=False, timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def client(self, **headers: str) -> httpx.Client:
        return httpx.Client(base_url=f"https://{self.http}", verify=False, timeout=20, headers=headers)


def lock_key(path: Path, password: str) -> None:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(password.encode())
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))


def run(
    evidence: Evidence, agent: Agent, *args: str, stdin: str = "", **environ: str
) -> "subprocess.CompletedProcess[str]":
    """A command with a login in its environment; its output is evidence, and so is every command line meanwhile."""
    login = {
        "STREAMHOUSE_AGENTS": f"https://{agent.http}",
        "STREAMHOUSE_USER": "admin",
        "STREAMHOUSE_PASSWORD": CANARIES["bootstrap password"],
        "STREAMHOUSE_CA": str(agent.folder / "ca.pem"),
    }
    command = [sys.executable, "-m", "streamhouse", *args]
    environment = agent.environment | login | environ
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    look_at_command_lines(evidence)
    try:
        output, errors = process.communicate(stdin, timeout=LIMIT_S)
    finally:
        process.kill()
    evidence.add(f"output of {' '.join(args[:2])}", output + errors)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def look_at_command_lines(evidence: Evidence) -> None:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            evidence.add("command lines", path.read_bytes())


def use_http(evidence: Evidence, agent: Agent) -> None:
    wrong, password = CANARIES["wrong password"], CANARIES["bootstrap password"]
    bad = [
        {"authorization": "Basic " + base64.b64encode(f"admin:{wrong}".encode()).decode()},
        {"authorization": f"Bearer {CANARIES['wrong token']}"},
        {"authorization": f"Bearer eyJhbGciOiJub25lIn0.{CANARIES['wrong token']}.x"},
        {"x-api-key": CANARIES["wrong key"]},
        {"authorization": f"Nonsense {CANARIES['wrong token']}"},
    ]
    for headers in bad:
        with agent.client(**headers) as client:
            for path in ("/v1/topics", "/v1/users"):
                response = client.get(path)
                assert response.status_code == 401
                evidence.add("http", response.text + str(response.headers))
    good = {"authorization": "Basic " + base64.b64encode(f"admin:{password}".encode()).decode()}
    with agent.client(**good) as client:
        for path in (
            "/metrics", "/v1/users", "/v1/keys", "/v1/acls", "/v1/doctor", "/v1/agents", "/v1/pipelines", "/v1/tables",
            "/v1/cluster", "/v1/config", "/health/ready", "/openapi.json", "/v1/topics/__audit/partitions/0/records",
        ):  # fmt: skip
            response = client.get(path)
            evidence.add(f"http {path}", response.text + str(response.headers))
        inline = f"postgresql://u:{CANARIES['inline password']}@127.0.0.1:1/x"
        columns = [{"name": "id", "type": "BIGINT"}]
        for name, options in (("shop", {"connection": "shop", "table": "orders"}), ("own", {"connection": inline})):
            table = {"connector": "postgresql", "columns": columns, "options": options}
            response = client.put(f"/v1/tables/{name}", json=table)
            assert response.is_success == (name == "shop"), response.text
            evidence.add("http tables", response.text.replace(inline, ""))  # what was sent may be shown to its sender
        statement = f"CREATE TABLE x (id BIGINT) WITH (connector = 'postgresql', connection = '{inline}', table = 'x')"
        for path, body in (("/v1/sql", {"sql": statement}), ("/v1/sql/validate", {"text": statement})):
            response = client.post(path, json=body)
            evidence.add("http sql", response.text.replace(inline, ""))
        beat = {"address": "127.0.0.1:1", "token": CANARIES["worker's token"]}
        process = ClusterTokens(CANARIES["cluster secret"], clock=SystemClock()).make(Principal(WORKER, "w-1"))
        path, bearer = "/v1/sql/workers/w-1/heartbeat", {"authorization": f"Bearer {process}"}
        assert client.post(path, json=beat, headers=bearer).status_code == 200
        evidence.add("http workers", client.get("/v1/sql/workers").text)
        client.post("/v1/users", json={"name": "broken", "password": CANARIES["wrong password"], "x": 1})


def use_kafka(evidence: Evidence, agent: Agent) -> None:
    config = {
        "bootstrap.servers": agent.kafka,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(agent.folder / "ca.pem"),
        "sasl.username": "admin",
    }
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        for password in (CANARIES["wrong password"], CANARIES["bootstrap password"]):
            errors: list[str] = []
            producer = confluent_kafka.Producer(
                config
                | {
                    "sasl.mechanisms": mechanism,
                    "sasl.password": password,
                    "error_cb": lambda e, to=errors: to.append(str(e)),
                }
            )
            producer.produce("orders", b"value")
            left = producer.flush(3 if password == CANARIES["wrong password"] else 30)
            evidence.add("kafka", "".join(errors))
            assert (left == 0) == (password != CANARIES["wrong password"]), errors
            producer.purge()
    host, port = agent.kafka.split(":")
    with socket.create_connection((host, int(port)), timeout=5) as plain:  # a password where TLS was expected
        plain.sendall(f"GET /?{CANARIES['wrong password']} HTTP/1.1\r\n\r\n".encode())
        with suppress(OSError):
            evidence.add("kafka", plain.recv(1000))


def use_grpc(evidence: Evidence, agent: Agent) -> None:
    roots = (agent.folder / "ca.pem").read_bytes()
    for authorization in (
        f"Bearer {CANARIES['wrong token']}",
        "Basic " + base64.b64encode(f"admin:{CANARIES['wrong password']}".encode()).decode(),
    ):
        with grpc.secure_channel(agent.grpc, grpc.ssl_channel_credentials(roots)) as channel:
            call = channel.unary_unary("/streamhouse.v1.AdminService/ListTopics", None, bytes)
            with pytest.raises(grpc.RpcError) as refused:
                call(b"", metadata=(("authorization", authorization),), timeout=10)
            evidence.add("grpc", str(refused.value.details()))


def use_commands(evidence: Evidence, agent: Agent) -> str:
    """Returns an API key that was made."""
    assert run(evidence, agent, "topics", "create", "orders", "-b", agent.kafka).returncode in (0, 1)
    user, changed = CANARIES["new user's password"], CANARIES["changed password"]
    made = run(evidence, agent, "users", "create", "alice", "--password-stdin", stdin=user)
    assert made.returncode == 0, made.stderr
    run(evidence, agent, "users", "passwd", "alice", "--password-stdin", stdin=changed)
    login = {"STREAMHOUSE_USER": "alice", "STREAMHOUSE_PASSWORD": changed}
    run(evidence, agent, "topics", "list", **login)
    refused = run(evidence, agent, "users", "list", **(login | {"STREAMHOUSE_PASSWORD": CANARIES["wrong password"]}))
    assert refused.returncode != 0
    run(
        evidence,
        agent,
        "users",
        "list",
        STREAMHOUSE_USER="",
        STREAMHOUSE_PASSWORD="",
        STREAMHOUSE_TOKEN=CANARIES["wrong token"],
    )
    hidden = Evidence()
    key = run(hidden, agent, "keys", "create", "--for", "User:alice", "--json")
    assert key.returncode == 0, key.stderr
    token = next(str(value) for value in json.loads(key.stdout).values() if len(str(value)) > 40)
    run(evidence, agent, "topics", "list", STREAMHOUSE_USER="", STREAMHOUSE_PASSWORD="", STREAMHOUSE_TOKEN=token)
    for args in (("users", "list"), ("keys", "list"), ("acls", "list"), ("doctor",), ("cluster", "show"), ("whoami",)):
        run(evidence, agent, *args)
    settings = {
        "STREAMHOUSE_METADATA_URL": f"postgresql://u:{CANARIES['metadata password']}@127.0.0.1:1/x",
        "STREAMHOUSE_SECURITY_CLUSTER_SECRET": "env:CLUSTER",
        "CLUSTER": CANARIES["cluster secret"],
        "STREAMHOUSE_METADATA_START_WAIT_S": "0",
        "STREAMHOUSE_AGENTS": "",
    }
    shown = run(evidence, agent, "config", "show", **settings)
    assert "postgresql://u:***@127.0.0.1" in shown.stdout.replace("\n", ""), shown.stderr
    run(evidence, agent, "config", "show", "--json", **settings)
    other = agent.folder / "other"
    for more in (
        settings,  # a database that doesn't answer
        {"CONNECTION_SHOP": f"mysql://{CANARIES['connection']}", "KAFKA_LISTEN": "127.0.0.1:99999"},
        {"SECURITY_BOOTSTRAP_PASSWORD": CANARIES["bootstrap password"], "SECURITY_BOOTSTRAP_USER": "x"},
        {"SECURITY_CLUSTER_SECRET": CANARIES["cluster secret"]},
        {
            "ENCRYPTION_KMS": "vault",
            "ENCRYPTION_VAULT_TOKEN": CANARIES["Vault's token"],
            "ENCRYPTION_URL": "http://127.0.0.1:1",
            "ENCRYPTION_KEY": "k",
            "METADATA_START_WAIT_S": "0",
        },
    ):
        named = {name if name in settings else f"STREAMHOUSE_{name}": value for name, value in more.items()}
        listen = {"STREAMHOUSE_KAFKA_LISTEN": "127.0.0.1:0", "STREAMHOUSE_HTTP_LISTEN": "127.0.0.1:0"}
        failed = run(evidence, agent, "up", "--data", str(other), **(listen | named))
        assert failed.returncode != 0, more
        shutil.rmtree(other, ignore_errors=True)
    bundle = agent.folder / "bundle"
    run(evidence, agent, "doctor", "--bundle", str(bundle))
    for path in agent.folder.glob("bundle*"):
        add_archive(evidence, path)
    return token


def add_archive(evidence: Evidence, path: Path) -> None:
    data = path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                evidence.add(f"bundle {name}", archive.read(name))
        return
    with suppress(OSError):
        data = gzip.decompress(data)
    with suppress(tarfile.TarError), tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive.getmembers():
            if (file := archive.extractfile(member)) is not None:
                evidence.add(f"bundle {member.name}", file.read())
    evidence.add("bundle", data)


def test_secrets_are_in_no_log_answer_metric_command_line_database_or_object(tmp_path: Path, vault: Server) -> None:  # noqa: F811
    evidence, agent = Evidence(), Agent(tmp_path, vault.url)
    with agent:
        look_at_command_lines(evidence)
        token = use_commands(evidence, agent)
        use_http(evidence, agent)
        use_kafka(evidence, agent)
        use_grpc(evidence, agent)
        time.sleep(1)  # a flush
        evidence.add(
            "open files",
            "".join(os.readlink(path) for path in Path(f"/proc/{agent.process.pid}/fd").iterdir() if path.is_symlink()),
        )
        evidence.add_folder(agent.data)
        agent.process.send_signal(signal.SIGABRT)  # with the stacks of all threads
        agent.process.wait(LIMIT_S)
    log = agent.log.read_bytes()
    assert b"debug" in log
    assert b"Fatal Python error: Aborted" in log
    evidence.add("log", log)
    evidence.add_folder(agent.data)
    data_keys = {
        f"data key {number}": base64.b64decode(request["plaintext"]).decode("latin-1")
        for number, (path, _, request) in enumerate(vault.requests)
        if "/encrypt/" in path
    }
    assert data_keys
    assert len(evidence.found["log"]) > 10_000
    assert any(name.startswith("data/objects/segments/") for name in evidence.found)
    assert any(name.startswith("bundle") for name in evidence.found)
    assert evidence.secrets(CANARIES | {"API key": token}) == []
    raw = {name: key.encode("latin-1") for name, key in data_keys.items()}
    results = [
        f"{name} in {where}"
        for name, key in raw.items()
        for where, content in evidence.found.items()
        if key in content or key.hex().encode() in content or base64.b64encode(key) in content
    ]
    assert results == []


def test_the_look_finds_what_is_there() -> None:
    evidence = Evidence()
    for shift in range(3):
        evidence.add(f"base64 {shift}", b"xx" + base64.b64encode(b"x" * shift + b"a-canary-of-some-length" + b"y" * 5))
    evidence.add("hex", b"0x" + b"a-canary-of-some-length".hex().encode())
    evidence.add("nothing", b"a canary")
    assert len(evidence.secrets({"it": "a-canary-of-some-length"})) == 4
