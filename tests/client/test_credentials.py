"""Credentials: what they say, what they never show, and what is said when TLS or a login fails."""

import asyncio
import pickle
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from streamhouse import Client, Credentials
from streamhouse.client.http import Http
from streamhouse.client.kafka_admin import Admin
from streamhouse.client.kafka_errors import from_code
from streamhouse.client.kafka_security import connection_options, kafka_protocol
from streamhouse.errors import AccessDenied, Misconfigured, NotAuthenticated, TopicAccessDenied, UserExists
from tests.support.tls import Authority

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n" + b'{"agents":[]}'


@asynccontextmanager
async def server(context: ssl.SSLContext | None) -> AsyncIterator[int]:
    """Responds to every HTTP request with an empty list of agents."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (await reader.read(65536)).endswith(b"\r\n\r\n"):
                writer.write(ANSWER)
        except OSError:
            pass
        writer.close()

    started = await asyncio.start_server(respond, "127.0.0.1", 0, ssl=context)
    try:
        yield started.sockets[0].getsockname()[1]
    finally:
        started.close()


def test_secrets_are_in_no_repr_and_in_no_error(tmp_path: Path) -> None:
    known = Credentials(user="alice", password="hunter22")
    assert "hunter22" not in f"{known!r} {known}"
    assert "alice" in repr(known)
    assert "sesame-key" not in repr(Credentials(token="sesame-key"))
    with pytest.raises(Misconfigured) as raised:
        Credentials(password="hunter22")
    assert "hunter22" not in str(raised.value)


def test_they_reach_executors_by_pickle() -> None:
    known = Credentials(user="alice", password="hunter22", ca="ca.pem")
    assert pickle.loads(pickle.dumps(known)) == known


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"user": "alice", "password": "x", "token": "y"}, "a user or with a token"),
        ({"user": "alice"}, "there is none; user=alice"),
        ({"key": "key.pem"}, "no certificate that it belongs to"),
        ({"user": "a", "password": "b", "sasl_mechanism": "GSSAPI"}, "no such SASL mechanism"),
        ({"kafka_protocol": "TLS"}, "no such protocol"),
    ],
)
def test_what_does_not_fit_together_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        Credentials(**given)  # type: ignore[arg-type]


def test_the_environment_has_them(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("from the file\n")
    environ = {
        "STREAMHOUSE_USER": "alice",
        "STREAMHOUSE_PASSWORD_FILE": str(tmp_path / "password"),
        "STREAMHOUSE_CA": "ca.pem",
    }
    assert Credentials.from_environment(environ) == Credentials(user="alice", password="from the file", ca="ca.pem")
    assert Credentials.from_environment({"STREAMHOUSE_TOKEN": "t"}).headers == {"authorization": "Bearer t"}
    with pytest.raises(Misconfigured, match="where=STREAMHOUSE_PASSWORD_FILE"):
        Credentials.from_environment({"STREAMHOUSE_USER": "a", "STREAMHOUSE_PASSWORD_FILE": str(tmp_path / "none")})


def test_the_kafka_protocol_follows_from_the_rest(tmp_path: Path) -> None:
    ca = str(Authority(tmp_path).path)
    assert kafka_protocol(Credentials()) == "PLAINTEXT"
    assert kafka_protocol(Credentials(ca=ca)) == "SSL"
    assert kafka_protocol(Credentials(token="t")) == "SASL_PLAINTEXT"
    assert kafka_protocol(Credentials(user="a", password="b").for_agents("https://a:1")) == "SASL_SSL"
    assert kafka_protocol(Credentials(user="a", password="b", ca=ca, kafka_protocol="SSL")) == "SSL"
    login = connection_options(Credentials(user="a", password="b", ca=ca))
    assert login["sasl_mechanism"] == "SCRAM-SHA-512"
    assert login["ssl_context"].check_hostname
    assert connection_options(Credentials(token="t"))["sasl_mechanism"] == "OAUTHBEARER"


@pytest.mark.parametrize("file", ["ca", "cert"])
def test_files_that_can_not_be_used_are_named(tmp_path: Path, file: str) -> None:
    with pytest.raises(Misconfigured, match="is not there"):
        Credentials(**{file: str(tmp_path / "none.pem")}).ssl_context()  # type: ignore[arg-type]
    (tmp_path / "bad.pem").write_text("bad")
    with pytest.raises(Misconfigured, match=r"bad\.pem"):
        Credentials(**{file: str(tmp_path / "bad.pem")}).ssl_context()  # type: ignore[arg-type]


async def test_every_request_says_who_sends_it() -> None:
    seen: list[str | None] = []

    def respond(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return httpx.Response(200, json={"agents": []})

    for known in (Credentials(user="alice", password="hunter22"), Credentials(token="shk_1"), Credentials()):
        async with Http("a:1", credentials=known, transport=httpx.MockTransport(respond)) as http:
            await http.agents()
    assert seen == ["Basic YWxpY2U6aHVudGVyMjI=", "Bearer shk_1", None]


async def test_addresses_without_a_scheme_are_tls_with_an_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with server(authority.server()) as port:
        for address, known in (
            (f"127.0.0.1:{port}", Credentials(ca=str(authority.path))),
            (f"https://127.0.0.1:{port}", Credentials(ca=str(authority.path))),
        ):
            async with Http(address, credentials=known) as http:
                assert await http.agents() == []


async def test_an_unknown_authority_is_said(tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    async with server(Authority(tmp_path).server()) as port:
        async with Http(f"127.0.0.1:{port}", credentials=Credentials(ca=str(other.path))) as http:
            with pytest.raises(Misconfigured, match=f"127.0.0.1:{port} is signed by an authority .* with --ca"):
                await http.agents()
        with pytest.raises(Misconfigured, match="signed by an authority that is not known here"):
            async with Admin(f"127.0.0.1:{port}", credentials=Credentials(ca=str(other.path))):
                pass


async def test_a_certificate_for_another_name_is_said(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    known = Credentials(ca=str(authority.path))
    async with server(authority.server("192.0.2.1")) as port:
        async with Http(f"127.0.0.1:{port}", credentials=known) as http:
            with pytest.raises(Misconfigured, match="is for another name"):
                await http.agents()
        with pytest.raises(Misconfigured, match="is for another name"):
            async with Admin(f"127.0.0.1:{port}", credentials=known):
                pass


async def test_a_plain_client_of_a_tls_listener_gets_that_error(tmp_path: Path) -> None:
    async with server(Authority(tmp_path).server()) as port:
        async with Http(f"127.0.0.1:{port}") as http:
            with pytest.raises(Misconfigured, match=f"wants TLS; give its address as https://127.0.0.1:{port}"):
                await http.agents()
            with pytest.raises(Misconfigured, match="wants TLS"):
                await http.drain(1)
        with pytest.raises(Misconfigured, match="wants TLS"):
            async with Admin(f"127.0.0.1:{port}"):
                pass


async def test_a_tls_client_of_a_plain_listener_gets_that_error(tmp_path: Path) -> None:
    known = Credentials(ca=str(Authority(tmp_path).path))
    async with server(None) as port, Http(f"127.0.0.1:{port}", credentials=known) as http:
        with pytest.raises(Misconfigured, match="doesn't speak TLS"):
            await http.agents()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, {"title": "NotAuthenticated", "detail": "user or password is wrong"}, NotAuthenticated),
        (401, {}, NotAuthenticated),
        (403, {"title": "TopicAccessDenied", "detail": "not authorised; topic=a"}, TopicAccessDenied),
        (403, {}, AccessDenied),
    ],
)
async def test_refusals_of_agents_have_a_class(status: int, body: dict[str, str], kind: type[Exception]) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(status, json=body))
    async with Http("a:1", transport=transport) as http:
        with pytest.raises(kind):
            await http.agents()


async def test_a_user_that_exists_has_a_class() -> None:
    body = {"title": "UserExists", "detail": "the user exists; user='a'"}
    async with Http("a:1", transport=httpx.MockTransport(lambda request: httpx.Response(409, json=body))) as http:
        with pytest.raises(UserExists, match="the user exists"):
            await http.transaction("a")


def test_kafkas_codes_of_access_have_a_class() -> None:
    assert isinstance(from_code(29, subject="orders"), TopicAccessDenied)
    assert isinstance(from_code(31, subject="cluster"), AccessDenied)
    assert isinstance(from_code(58, subject="cluster"), NotAuthenticated)


def test_the_client_takes_them_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMHOUSE_USER", "alice")
    with pytest.raises(Misconfigured, match="user=alice"):
        Client()
    Client(credentials=Credentials())
