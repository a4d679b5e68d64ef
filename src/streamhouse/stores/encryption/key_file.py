"""KeyFile: wrapping keys in a file, for trials and small sites.

A line has the id of a key and 32 bytes in base64; the first line wraps new data keys, the others unwrap older ones.
To rotate, put a new line at the top. Empty lines and lines that begin with # don't count.
"""

import asyncio
import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from streamhouse.errors import DataKeyUnavailable
from streamhouse.format.encryption import KEY_BYTES
from streamhouse.stores.encryption.base import WrappedKey

MAX_FILE_BYTES: Final = 1024 * 1024
MAX_ID_CHARS: Final = 200
_NONCE_BYTES: Final = 12


class KeyFile:
    """A `KeyService`. The file is read for each request, so that a new key is used without a restart."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __repr__(self) -> str:
        return f"<KeyFile {self._path}>"

    async def wrap(self, key: bytes) -> WrappedKey:
        key_id, wrapping = next(iter((await self._keys()).items()))
        nonce = os.urandom(_NONCE_BYTES)
        return WrappedKey(key_id, nonce + AESGCM(wrapping).encrypt(nonce, key, key_id.encode()))

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        key_id, data = wrapped
        wrapping = (await self._keys()).get(key_id)
        if wrapping is None:
            raise DataKeyUnavailable("data key", key_id=key_id, why=f"the key is not in the file {self._path}")
        try:
            return AESGCM(wrapping).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], key_id.encode())
        except (InvalidTag, ValueError):
            why = f"the file {self._path} has another key of this id"
            raise DataKeyUnavailable("data key", key_id=key_id, why=why) from None

    async def _keys(self) -> Mapping[str, bytes]:
        try:
            text = await asyncio.to_thread(_read, self._path)
        except OSError as error:
            why = f"the file with keys can't be read: {error.strerror}"
            raise DataKeyUnavailable("keys", key_id=str(self._path), why=why) from None
        return parse_keys(text, self._path)

    async def aclose(self) -> None:
        """Does nothing: the file is open only while it is read."""


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_FILE_BYTES)


def parse_keys(text: bytes, path: Path) -> Mapping[str, bytes]:
    """The keys in their order; raises `DataKeyUnavailable` for a line that is none. Its error never has the key."""
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.decode(errors="replace").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        words = line.split()
        try:
            key = base64.b64decode(words[1], validate=True) if len(words) == 2 else b""
        except binascii.Error:
            key = b""
        if len(key) != KEY_BYTES or len(words[0]) > MAX_ID_CHARS or words[0] in keys:
            why = f"line {number} is not a new id and {KEY_BYTES} bytes in base64"
            raise DataKeyUnavailable("keys", key_id=str(path), why=why)
        keys[words[0]] = key
    if not keys:
        raise DataKeyUnavailable("keys", key_id=str(path), why="the file has no key")
    return keys
