"""Requests to key services over HTTP: a deadline, a limit of bytes, no redirects, and errors by what they mean."""

import asyncio
import base64
import binascii
import ssl
from collections.abc import Mapping
from typing import Any, Final

import httpx
import msgspec

from streamhouse.config import EncryptionSettings
from streamhouse.errors import DataKeyUnavailable, Misconfigured, Unavailable

MAX_ANSWER_BYTES: Final = 64 * 1024
_AWAY: Final = (429, 500, 502, 503, 504)


class KeyServiceHttp:
    def __init__(self, settings: EncryptionSettings) -> None:
        try:
            context = ssl.create_default_context(cafile=settings.ca or None)
        except OSError as error:
            raise Misconfigured(f"encryption.ca can't be used; path={settings.ca} why={error}") from None
        self._timeout_s = settings.timeout_s
        self._client = httpx.AsyncClient(verify=context, trust_env=False, follow_redirects=False, timeout=None)

    def __repr__(self) -> str:
        return f"<KeyServiceHttp timeout_s={self._timeout_s:g}>"

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None, *, key_id: str
    ) -> Mapping[str, Any]:
        """The JSON of an answer. Raises `Unavailable` while the service is unavailable, `DataKeyUnavailable` if it
        refuses; texts of errors have nothing that was sent."""
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream(method, url, headers=dict(headers), content=body) as response,
            ):
                data = await _read(response)
        except TimeoutError:
            raise Unavailable(f"the key service didn't answer in {self._timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise Unavailable(
                f"the key service can't be reached; why={type(error).__name__}: {str(error)[:200]}"
            ) from None
        return _answer(response.status_code, data, key_id=key_id)

    async def aclose(self) -> None:
        await self._client.aclose()


def decoded(text: object) -> bytes:
    """The bytes behind a text of an answer, in base64; raises `Unavailable` if there are none."""
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        data = b""
    if not data:
        raise Unavailable("the key service's answer has no key")
    return data


def _answer(status: int, data: bytes, *, key_id: str) -> Mapping[str, Any]:
    try:
        response = msgspec.json.decode(data) if data else {}
    except (msgspec.DecodeError, RecursionError):
        response = {}
    if status == httpx.codes.OK and isinstance(response, dict):
        return response
    text = _reason(response if isinstance(response, dict) else {})
    if status in _AWAY or "Throttling" in text:
        raise Unavailable(f"the key service is unavailable; status={status} why={text}")
    raise DataKeyUnavailable("data key", key_id=key_id, why=f"the key service refused; status={status} why={text}")


def _reason(response: Mapping[str, Any]) -> str:
    """The service's own words: Vault's `errors`, Amazon's `__type` and `message`, Google's `error.message`."""
    error = response.get("error")
    parts = [response.get("__type"), response.get("message"), response.get("Message"), response.get("errors")]
    parts.append(error.get("message") if isinstance(error, dict) else error)
    return " ".join(str(part) for part in parts if part)[:200] or "not said"


async def _read(response: httpx.Response) -> bytes:
    data = bytearray()
    async for chunk in response.aiter_bytes():
        data += chunk
        if len(data) > MAX_ANSWER_BYTES:
            raise Unavailable(f"the key service's answer is too long; limit={MAX_ANSWER_BYTES}")
    return bytes(data)
