"""What `--secure` makes: certificates that clients trust, secrets that only the owner can read, files of clients."""

import asyncio
import ssl
import stat
from pathlib import Path

import pytest

from streamhouse.clock import SystemClock
from streamhouse.config import Address, load_settings
from streamhouse.config.secrets import read_secrets
from streamhouse.dev.agent_process import AgentPlan, Login
from streamhouse.dev.security import LocalSecurity, prepare_security


@pytest.fixture
def security(tmp_path: Path) -> LocalSecurity:
    return prepare_security(tmp_path / "security", clock=SystemClock())


def test_nobody_else_reads_anything(security: LocalSecurity) -> None:
    assert stat.S_IMODE(security.folder.stat().st_mode) == 0o700
    files = list(security.folder.iterdir())
    assert len(files) == 9
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert security.password not in repr(security)


def test_secrets_and_the_authority_stay_over_restarts(security: LocalSecurity) -> None:
    before = {path.name: path.read_bytes() for path in security.folder.iterdir()}
    again = prepare_security(security.folder, clock=SystemClock())
    assert again == security
    changed = {path.name for path in security.folder.iterdir() if path.read_bytes() != before[path.name]}
    assert changed == {"server.pem", "server-key.pem"}


async def test_clients_trust_the_certificate_on_loopback(security: LocalSecurity) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(security.folder / "server.pem", security.folder / "server-key.pem")
    client = ssl.create_default_context(cafile=str(security.ca))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    started = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=server)
    async with started:
        for name in ("127.0.0.1", "localhost", "::1"):
            port = started.sockets[0].getsockname()[1]
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name)
            writer.close()


def test_agents_start_with_its_settings(security: LocalSecurity) -> None:
    settings = load_settings(dict(security.settings), {})
    secrets = read_secrets(settings, {})
    assert secrets.bootstrap_password == security.password
    assert secrets.cluster_secret
    assert settings.kafka.protocol == settings.http.protocol == settings.grpc.protocol == "SASL_SSL"


def test_no_secret_is_in_an_argument_of_a_process(security: LocalSecurity, tmp_path: Path) -> None:
    address = Address("127.0.0.1", 1)
    plan = AgentPlan(
        number=1,
        kafka=address,
        http=address,
        data=tmp_path,
        log_path=tmp_path / "log",
        settings=security.settings,
        environment={},
    )
    assert security.password not in " ".join(plan.program().command)
    assert "hunter22" not in repr(Login(ca=security.ca, user="admin", password="hunter22"))


def test_files_of_clients_say_who_logs_in_and_whom_they_trust(security: LocalSecurity) -> None:
    java, rdkafka = security.java_file.read_text(), security.librdkafka_file.read_text()
    assert f'username="admin" password="{security.password}";' in java
    assert f"ssl.truststore.location={security.ca}" in java
    assert f"sasl.password={security.password}" in rdkafka
    assert security.curl_file.read_text().startswith(f'user = "admin:{security.password}"')
