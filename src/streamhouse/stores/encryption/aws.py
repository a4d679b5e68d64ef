"""AwsKeys: data keys wrapped by AWS KMS.

Credentials come from `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`, or from the container's own
service (`AWS_CONTAINER_CREDENTIALS_FULL_URI`: ECS, EKS Pod Identity), which is asked before each request.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from streamhouse.clock import Clock
from streamhouse.config import EncryptionSettings
from streamhouse.errors import DataKeyUnavailable, Misconfigured, Unavailable
from streamhouse.stores.encryption.base import WrappedKey
from streamhouse.stores.encryption.http import KeyServiceHttp, decoded

CONTEXT: Final = {"streamhouse": "data key"}
"""AWS's encryption context: shown in its audit log, and needed for decrypting."""
_TYPE: Final = "application/x-amz-json-1.1"
_CONTAINER: Final = "http://169.254.170.2"


class Credentials(NamedTuple):
    access_key: str
    secret_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        return f"<Credentials {self.access_key}>"


class AwsKeys:
    """A `KeyService`. Ids are the ARNs that KMS answers; its own rotation needs nothing here."""

    def __init__(
        self, settings: EncryptionSettings, http: KeyServiceHttp, environ: Mapping[str, str], clock: Clock
    ) -> None:
        if not settings.key:
            raise Misconfigured("encryption.kms=aws needs encryption.key: the key's id, alias or ARN")
        arn = settings.key.split(":")
        from_arn = arn[3] if len(arn) > 5 and arn[0] == "arn" else ""
        self._region = from_arn or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        self._url = settings.url.rstrip("/") or f"https://kms.{self._region}.amazonaws.com"
        self._key = settings.key
        self._http = http
        self._environ = environ
        self._clock = clock

    def __repr__(self) -> str:
        return f"<AwsKeys {self._key} at {self._url}>"

    async def wrap(self, key: bytes) -> WrappedKey:
        body = {"KeyId": self._key, "Plaintext": base64.b64encode(key).decode(), "EncryptionContext": CONTEXT}
        answer = await self._call("Encrypt", body, key_id=self._key)
        return WrappedKey(str(answer.get("KeyId") or self._key), decoded(answer.get("CiphertextBlob")))

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        blob = base64.b64encode(wrapped.wrapped).decode()
        body = {"KeyId": wrapped.key_id, "CiphertextBlob": blob, "EncryptionContext": CONTEXT}
        return decoded((await self._call("Decrypt", body, key_id=wrapped.key_id)).get("Plaintext"))

    async def _call(self, operation: str, body: Mapping[str, Any], *, key_id: str) -> Mapping[str, Any]:
        data, target = json.dumps(body).encode(), f"TrentService.{operation}"
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        headers = sign(
            self._url, data, target=target, region=self._region, credentials=await self._credentials(), now=now
        )
        return await self._http.request("POST", self._url + "/", headers, data, key_id=key_id)

    async def _credentials(self) -> Credentials:
        environ = self._environ
        if environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY"):
            token = environ.get("AWS_SESSION_TOKEN", "")
            return Credentials(environ["AWS_ACCESS_KEY_ID"], environ["AWS_SECRET_ACCESS_KEY"], token)
        url = environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
        if not url and environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
            url = _CONTAINER + environ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"]
        if not url:
            why = "no credentials; do=set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a container's role"
            raise DataKeyUnavailable("data key", key_id=self._key, why=why)
        answer = await self._http.request("GET", url, _container_headers(environ), key_id=self._key)
        found = [str(answer.get(name, "")) for name in ("AccessKeyId", "SecretAccessKey", "Token")]
        return Credentials(*found)

    async def aclose(self) -> None:
        await self._http.aclose()


def _container_headers(environ: Mapping[str, str]) -> Mapping[str, str]:
    token = environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
    if path := environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
        try:
            token = Path(path).read_text().strip()
        except OSError as error:
            raise Unavailable(f"the container's token can't be read; path={path} why={error.strerror}") from None
    return {"authorization": token} if token else {}


def sign(url: str, body: bytes, *, target: str, region: str, credentials: Credentials, now: datetime) -> dict[str, str]:
    """The headers of a request to KMS, with AWS's signature of version 4."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{region}/kms/aws4_request"
    headers = {"content-type": _TYPE, "host": urlsplit(url).netloc, "x-amz-date": stamp, "x-amz-target": target}
    if credentials.session_token:
        headers["x-amz-security-token"] = credentials.session_token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers
