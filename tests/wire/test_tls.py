"""TLS of listeners: real handshakes on loopback, certificates that change meanwhile, users of certificates."""

import asyncio
import os
import ssl
from pathlib import Path

import pytest

from streamhouse.config import SecuritySettings
from streamhouse.errors import Misconfigured
from streamhouse.wire.tls import ServerTls, TlsFiles, parse_principal_rules, user_of
from tests.contracts.clocks import ManualClock
from tests.support.certificates import make_authority


def settings(folder: Path, *, client_auth: str = "none", name: str = "server") -> SecuritySettings:
    return SecuritySettings(
        tls_certificate=str(folder / f"{name}.pem"),
        tls_key=str(folder / f"{name}.key"),
        tls_ca=str(folder / "ca.pem"),
        tls_client_auth=client_auth,  # type: ignore[arg-type]
    )


async def peer_names(tls: ServerTls, client: ssl.SSLContext) -> tuple[str, str | None]:
    """The server's name as the client sees it, and the user of the client's certificate as the server sees it."""
    seen: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        certificate = writer.get_extra_info("peercert")
        seen.set_result(user_of(certificate, parse_principal_rules("RULE:^.*CN=([^,]+).*$/$1/,DEFAULT")))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls.context())
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        subject = dict(part[0] for part in writer.get_extra_info("peercert")["subject"])
        user = await seen
        await reader.read()
        writer.close()
        await writer.wait_closed()
    return subject["commonName"], user


async def test_a_client_that_trusts_the_authority_connects(tmp_path: Path) -> None:
    make_authority(tmp_path).issue(tmp_path, "server")
    tls = ServerTls(TlsFiles(settings=settings(tmp_path)), clock=ManualClock())
    assert await peer_names(tls, ssl.create_default_context(cafile=tmp_path / "ca.pem")) == ("server", None)


async def test_a_client_of_another_authority_does_not(tmp_path: Path) -> None:
    make_authority(tmp_path).issue(tmp_path, "server")
    make_authority(tmp_path, "other")
    tls = ServerTls(TlsFiles(settings=settings(tmp_path)), clock=ManualClock())
    with pytest.raises(ssl.SSLCertVerificationError):
        await peer_names(tls, ssl.create_default_context(cafile=tmp_path / "other.pem"))


async def test_a_required_certificate_names_the_user(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    authority.issue(tmp_path, "server")
    authority.issue(tmp_path, "alice")
    tls = ServerTls(TlsFiles(settings=settings(tmp_path, client_auth="required")), clock=ManualClock())
    client = TlsFiles(settings=settings(tmp_path, name="alice")).client_context()
    assert await peer_names(tls, client) == ("server", "alice")


async def test_new_files_are_for_new_connections_also_without_sni(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    authority.issue(tmp_path, "server")
    tls = ServerTls(TlsFiles(settings=settings(tmp_path)), clock=ManualClock())
    client = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    assert (await peer_names(tls, client))[0] == "server"
    assert not tls.reload()
    authority.issue(tmp_path, "renewed")
    os.replace(tmp_path / "renewed.pem", tmp_path / "server.pem")
    assert not tls.reload()  # certificate and key don't belong together: the old ones stay
    assert (await peer_names(tls, client))[0] == "server"
    os.replace(tmp_path / "renewed.key", tmp_path / "server.key")
    assert tls.reload()
    assert (await peer_names(tls, client))[0] == "renewed"


@pytest.mark.parametrize("name", ["server.pem", "server.key", "ca.pem"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    make_authority(tmp_path).issue(tmp_path, "server")
    (tmp_path / name).unlink()
    with pytest.raises(Misconfigured, match=name):
        ServerTls(TlsFiles(settings=settings(tmp_path)), clock=ManualClock())


CERTIFICATE = {
    "subject": ((("countryName", "DE"),), (("organizationName", 'A, "B"'),), (("commonName", "Alice"),)),
    "subjectAltName": (("DNS", "host.example"), ("email", "alice@example.org"), ("URI", "spiffe://ex/alice")),
}


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", 'CN=Alice,O=A\\, \\"B\\",C=DE'),
        (r"RULE:^CN=([^,]+),.*$/$1/L,DEFAULT", "alice"),
        (r"RULE:^CN=([^,]+),.*C=(.*)$/$1@$2/U", "ALICE@DE"),
        (r"RULE:^OU=.*$/x/, RULE:^CN=([a-zA-Z]+).*$/$1-svc/", "Alice-svc"),
        ("RULE:^OU=.*$/x/", None),
        ("SAN:email", "alice@example.org"),
        ("SAN:dns", "host.example"),
        ("SAN:uri,DEFAULT", "spiffe://ex/alice"),
    ],
)
def test_rules_make_users_of_subjects(rules: str, user: str | None) -> None:
    assert user_of(CERTIFICATE, parse_principal_rules(rules)) == user


@pytest.mark.parametrize("rules", ["RULE:", "RULE:(/x/", "RULE:^CN=(.*)$/$2/", "ANYTHING", "RULE:a/b/X"])
def test_what_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(Misconfigured, match="tls_principal_rules"):
        parse_principal_rules(rules)


def test_without_a_certificate_there_is_no_user() -> None:
    assert user_of(None, parse_principal_rules("DEFAULT")) is None
    assert user_of({}, parse_principal_rules("DEFAULT")) is None
