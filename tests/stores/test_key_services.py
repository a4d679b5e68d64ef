"""Key services over HTTP, each against a fake server with the service's protocol."""

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from joserfc import jwt
from joserfc.jwk import RSAKey

from streamhouse.clock import SystemClock
from streamhouse.config import EncryptionSettings
from streamhouse.errors import DataKeyUnavailable, Misconfigured, Unavailable
from streamhouse.stores.encryption.base import KeyService
from streamhouse.stores.encryption.open import _service
from tests.support.agent import free_port

TOKEN = "hvs.a-token-nobody-may-see"
SECRET = "an-aws-secret-nobody-may-see"
KEY = bytes(range(32))
GOOGLE_KEY = "projects/p/locations/eu/keyRings/r/cryptoKeys/k"
ARN = "arn:aws:kms:eu-central-1:111122223333:key/1234"


class Server:
    """Answers of a key service; `script` has a status or a body for the next requests instead."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.script: list[tuple[int, bytes]] = []
        self.keys = {"v1": AESGCM(bytes(32)), "v2": AESGCM(bytes([1]) * 32)}
        self.version = "v1"
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            server_names: ClassVar[str] = ""

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.requests.append((self.path, headers, json.loads(body) if body else {}))
                server.raw = body
                status, data = server.script.pop(0) if server.script else server.answer(self.path, headers, body)
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST

            def log_request(self, code: int | str = "-", size: int | str = "-") -> None: ...

        return Handler

    raw = b""

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        request = json.loads(body) if body else {}
        if path.startswith("/v1/transit/"):
            return self._vault(path, headers, request)
        if path.startswith("/v1/projects/"):
            return self._google(path, request)
        if path == "/":
            return self._aws(headers, request)
        if path == "/credentials":
            expected = {"AccessKeyId": "AKIA2", "SecretAccessKey": SECRET, "Token": "session"}
            return (200, json.dumps(expected).encode()) if headers.get("authorization") == "pod" else (401, b"")
        return 404, b"{}"

    def _seal(self, plain: bytes) -> str:
        return base64.b64encode(self.keys[self.version].encrypt(bytes(12), plain, None)).decode()

    def _vault(self, path: str, headers: dict[str, str], requested: dict[str, str]) -> tuple[int, bytes]:
        if headers.get("x-vault-token") != TOKEN:
            return 403, b'{"errors":["permission denied"]}'
        if path == "/v1/transit/encrypt/records":
            sealed = f"vault:{self.version}:{self._seal(base64.b64decode(requested['plaintext']))}"
            return 200, json.dumps({"data": {"ciphertext": sealed}}).encode()
        _, version, sealed = requested["ciphertext"].split(":")
        if version not in self.keys:
            return 400, b'{"errors":["ciphertext or signature version is disallowed by policy (too old)"]}'
        plain = self.keys[version].decrypt(bytes(12), base64.b64decode(sealed), None)
        return 200, json.dumps({"data": {"plaintext": base64.b64encode(plain).decode()}}).encode()

    def _aws(self, headers: dict[str, str], requested: dict[str, Any]) -> tuple[int, bytes]:
        if requested["EncryptionContext"] != {"streamhouse": "data key"}:
            return 400, b'{"__type":"InvalidCiphertextException"}'
        if headers["x-amz-target"] == "TrentService.Encrypt":
            return 200, json.dumps(
                {"KeyId": ARN, "CiphertextBlob": self._seal(base64.b64decode(requested["Plaintext"]))}
            ).encode()
        plain = self.keys["v1"].decrypt(bytes(12), base64.b64decode(requested["CiphertextBlob"]), None)
        return 200, json.dumps({"KeyId": ARN, "Plaintext": base64.b64encode(plain).decode()}).encode()

    def _google(self, path: str, requested: dict[str, str]) -> tuple[int, bytes]:
        if path == f"/v1/{GOOGLE_KEY}:encrypt":
            sealed = f"{self.version}:{self._seal(base64.b64decode(requested['plaintext']))}"
            body = {
                "name": f"{GOOGLE_KEY}/cryptoKeyVersions/{self.version[1:]}",
                "ciphertext": base64.b64encode(sealed.encode()).decode(),
            }
            return 200, json.dumps(body).encode()
        version, _, sealed = base64.b64decode(requested["ciphertext"]).decode().partition(":")
        plain = self.keys[version].decrypt(bytes(12), base64.b64decode(sealed), None)
        return 200, json.dumps({"plaintext": base64.b64encode(plain).decode()}).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


def service(server: Server, kms: str, **environ: str) -> KeyService:
    names = {"vault": "records", "aws": "alias/records", "google": GOOGLE_KEY}
    settings = EncryptionSettings(kms=kms, key=names[kms], url=server.url, timeout_s=0.5)  # type: ignore[arg-type]
    credentials = {
        "VAULT_TOKEN": TOKEN,
        "AWS_ACCESS_KEY_ID": "AKIA1",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "eu-central-1",
        "GOOGLE_BEARER_TOKEN": "token",
    }
    return _service(settings, credentials | environ, SystemClock())


KINDS = pytest.mark.parametrize("kms", ["vault", "aws", "google"])
IDS = {
    "vault": ("transit/records:v1", "transit/records:v2"),
    "aws": (ARN, ARN),
    "google": (f"{GOOGLE_KEY}/cryptoKeyVersions/1", f"{GOOGLE_KEY}/cryptoKeyVersions/2"),
}


@KINDS
async def test_keys_are_wrapped_and_unwrapped_also_after_a_rotation(server: Server, kms: str) -> None:
    keys = service(server, kms)
    first = await keys.wrap(KEY)
    if kms != "aws":
        server.version = "v2"
    second = await keys.wrap(KEY[::-1])
    assert (first.key_id, second.key_id) == IDS[kms]
    assert KEY not in first.wrapped
    assert await keys.unwrap(first) == KEY
    assert await keys.unwrap(second) == KEY[::-1]
    await keys.aclose()


@KINDS
@pytest.mark.parametrize(
    "response", [(503, b""), (500, b"{}"), (429, b"{}"), (200, b"{}"), (200, b"no json"), (200, b"{" + b" " * 100_000)]
)
async def test_a_service_that_is_away_or_talks_nonsense_may_be_asked_again(
    server: Server, kms: str, response: tuple[int, bytes]
) -> None:
    keys = service(server, kms)
    wrapped = await keys.wrap(KEY)
    for call in (lambda: keys.wrap(KEY), lambda: keys.unwrap(wrapped)):
        server.script = [response]
        with pytest.raises(Unavailable) as failed:
            await call()
        assert not isinstance(failed.value, DataKeyUnavailable)
        assert TOKEN not in str(failed.value)
    assert await keys.unwrap(wrapped) == KEY
    await keys.aclose()


@KINDS
async def test_a_refusal_names_the_key_and_no_secret(server: Server, kms: str) -> None:
    keys = service(server, kms)
    wrapped = await keys.wrap(KEY)
    for status, body in (
        (403, b'{"errors":["permission denied"]}'),
        (400, b'{"__type":"NotFoundException","message":"no"}'),
    ):
        server.script = [(status, body)]
        with pytest.raises(DataKeyUnavailable, match=f"status={status}") as refused:
            await keys.unwrap(wrapped)
        assert not refused.value.is_away
        assert not [
            secret for secret in (TOKEN, SECRET, base64.b64encode(KEY).decode()) if secret in str(refused.value)
        ]
    await keys.aclose()


@KINDS
async def test_nobody_answers(server: Server, kms: str) -> None:
    server.url = f"http://127.0.0.1:{free_port()}"
    keys = service(server, kms)
    with pytest.raises(Unavailable, match="the key service can't be reached"):
        await keys.wrap(KEY)
    await keys.aclose()


async def test_vault_gets_its_token_and_namespace_from_where_they_are_named(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    settings = EncryptionSettings(
        kms="vault", key="records", url=server.url, vault_token=f"file:{file}", vault_namespace="team"
    )
    keys = _service(settings, {}, SystemClock())
    with pytest.raises(DataKeyUnavailable, match="permission denied"):
        await keys.wrap(KEY)
    file.write_text(f"{TOKEN}\n")  # an agent of Vault's renewed it
    await keys.wrap(KEY)
    assert server.requests[-1][1]["x-vault-namespace"] == "team"
    file.unlink()
    with pytest.raises(DataKeyUnavailable, match="can't be read"):
        await keys.wrap(KEY)
    await keys.aclose()


async def test_requests_to_aws_are_signed(server: Server) -> None:
    """The signature is computed again from what arrived, as AWS does."""
    keys = service(server, "aws", AWS_SESSION_TOKEN="session")
    await keys.wrap(KEY)
    _, headers, _ = server.requests[-1]
    credential, names, signature = (part.split("=", 1)[1] for part in headers["authorization"].split(", "))
    access_key, day, region, name, kind = credential.split("/")
    assert (access_key, region, name, kind) == ("AKIA1", "eu-central-1", "kms", "aws4_request")
    assert names.split(";") == ["content-type", "host", "x-amz-date", "x-amz-security-token", "x-amz-target"]
    signed = "".join(f"{each}:{headers[each]}\n" for each in names.split(";"))
    canonical = "\n".join(("POST", "/", "", signed, names, hashlib.sha256(server.raw).hexdigest()))
    scope = f"{day}/{region}/{name}/{kind}"
    text = "\n".join(("AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = b"AWS4" + SECRET.encode()
    for part in (day, region, name, kind):
        key = hmac.new(key, part.encode(), "sha256").digest()
    assert hmac.new(key, text.encode(), "sha256").hexdigest() == signature
    await keys.aclose()


async def test_a_container_has_a_role_of_its_own(server: Server, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("pod\n")
    environ = {
        "AWS_ACCESS_KEY_ID": "",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{server.url}/credentials",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token),
    }
    keys = service(server, "aws", **environ)
    await keys.wrap(KEY)
    assert "Credential=AKIA2/" in server.requests[-1][1]["authorization"]
    assert server.requests[-1][1]["x-amz-security-token"] == "session"
    without = service(server, "aws", AWS_ACCESS_KEY_ID="")
    with pytest.raises(DataKeyUnavailable, match="no credentials"):
        await without.wrap(KEY)
    await keys.aclose()
    await without.aclose()


async def test_a_service_account_of_google_signs_its_own_token(server: Server, tmp_path: Path) -> None:
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    file = tmp_path / "account.json"
    file.write_text(json.dumps({"private_key": pem, "private_key_id": "7", "client_email": "agent@p"}))
    keys = service(server, "google", GOOGLE_BEARER_TOKEN="", GOOGLE_APPLICATION_CREDENTIALS=str(file))
    await keys.wrap(KEY)
    token = server.requests[-1][1]["authorization"].removeprefix("Bearer ")
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    decoded = jwt.decode(token, RSAKey.import_key(public), algorithms=["RS256"])
    assert decoded.header["kid"] == "7"
    assert (decoded.claims["iss"], decoded.claims["aud"]) == ("agent@p", "https://cloudkms.googleapis.com/")
    file.write_text("{}")
    with pytest.raises(DataKeyUnavailable, match="can't be used"):
        await keys.wrap(KEY)
    await keys.aclose()


@pytest.mark.parametrize(
    ("kms", "word"), [("file", "path"), ("vault", "url"), ("aws", "ARN"), ("google", "cryptoKeys")]
)
def test_settings_that_miss_something_are_refused(kms: str, word: str) -> None:
    with pytest.raises(Misconfigured, match=word):
        _service(EncryptionSettings(kms=kms), {}, SystemClock())  # type: ignore[arg-type]
