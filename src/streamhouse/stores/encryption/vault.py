"""VaultKeys: data keys wrapped by a key of HashiCorp Vault's (or OpenBao's) transit engine."""

import asyncio
import base64
import json
from collections.abc import Mapping
from typing import Any

from streamhouse.config import EncryptionSettings
from streamhouse.config.secrets import read_secret
from streamhouse.errors import DataKeyUnavailable, Misconfigured, Unavailable
from streamhouse.stores.encryption.base import WrappedKey
from streamhouse.stores.encryption.http import KeyServiceHttp, decoded


class VaultKeys:
    """A `KeyService`. Ids are `MOUNT/KEY:vN`: rotating the key in Vault makes a new version, and old ones unwrap."""

    def __init__(self, settings: EncryptionSettings, http: KeyServiceHttp, environ: Mapping[str, str]) -> None:
        if not settings.url or not settings.key:
            raise Misconfigured("encryption.kms=vault needs encryption.url and encryption.key, the transit key's name")
        self._settings = settings
        self._http = http
        self._environ = environ

    def __repr__(self) -> str:
        return f"<VaultKeys {self._settings.url} {self._settings.vault_mount}/{self._settings.key}>"

    async def wrap(self, key: bytes) -> WrappedKey:
        name = f"{self._settings.vault_mount}/{self._settings.key}"
        response = await self._post(name, "encrypt", {"plaintext": base64.b64encode(key).decode()})
        ciphertext = str(response.get("ciphertext", ""))
        version = ciphertext.split(":")[1] if ciphertext.count(":") == 2 else ""
        if not version:
            raise Unavailable("Vault's answer has no ciphertext")
        return WrappedKey(f"{name}:{version}", ciphertext.encode())

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        name = wrapped.key_id.rpartition(":")[0]
        response = await self._post(name, "decrypt", {"ciphertext": wrapped.wrapped.decode(errors="replace")})
        return decoded(response.get("plaintext"))

    async def _post(self, name: str, operation: str, body: Mapping[str, str]) -> Mapping[str, Any]:
        mount, _, key = name.rpartition("/")
        named = self._settings.vault_token
        try:
            token = await asyncio.to_thread(read_secret, named, self._environ, setting="encryption.vault_token")
        except Misconfigured as error:
            raise DataKeyUnavailable("data key", key_id=name, why=str(error)) from None
        headers = {"x-vault-token": token, "x-vault-request": "true", "content-type": "application/json"}
        if self._settings.vault_namespace:
            headers["x-vault-namespace"] = self._settings.vault_namespace
        url = f"{self._settings.url.rstrip('/')}/v1/{mount}/{operation}/{key}"
        response = await self._http.request("POST", url, headers, json.dumps(body).encode(), key_id=name)
        data = response.get("data")
        return data if isinstance(data, dict) else {}

    async def aclose(self) -> None:
        await self._http.aclose()
