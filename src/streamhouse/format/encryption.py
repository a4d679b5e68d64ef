"""Encryption of bytes at rest: objects in chunks, and entries of WAL files. Described in `docs/formats/encryption.md`.

Data path   segment or WAL object -> **encrypt** -> PUT ; range GET -> **decrypt** -> its reader
Owns        the header of encrypted objects, the chunks, the derivation of keys and nonces from a data key
Leaves      data keys and wrapping them to `stores.encryption`, I/O to the stores

Invariants an object's key is used for that object alone, and every nonce once: nonces are positions, and each object
and each WAL file has a random salt bytes that don't authenticate are never returned: readers get `DAMAGED` in their
place, find that their checksums don't hold, and treat it as the damage that it is
"""

import hmac
import os
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from streamhouse.errors import CorruptObject, Misconfigured
from streamhouse.format.batch import Buffer

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC: Final = b"STRMHENC"
VERSION: Final = 1
HEADER_BYTES: Final = 1024
"""One copy of the header is before the chunks and one after them."""
CHUNK_BYTES: Final = 64 * 1024
TAG_BYTES: Final = 16
KEY_BYTES: Final = 32
SALT_BYTES: Final = 32
DAMAGED: Final = b"\xdb"

_MAX_CHUNK_BYTES: Final = 16 * 1024 * 1024
# magic, version, bytes of a chunk, bytes before encryption, salt
_FIXED: Final = struct.Struct(f">8sH2xIQ{SALT_BYTES}s")
# bytes of the key id, bytes of the wrapped key, check of the data key
_ENVELOPE: Final = struct.Struct(">HH8s")
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = HEADER_BYTES - _CRC.size
MAX_ENVELOPE_BYTES: Final = _CRC_AT - _FIXED.size
_NONCE_BYTES: Final = 12
_CHUNKS_AT_A_TIME: Final = 8


class KeyEnvelope(NamedTuple):
    """A stored data key: wrapped by a key of the key service, with that key's id."""

    key_id: str
    wrapped: bytes
    check: bytes
    """A check value of the data key, to detect that unwrapping returned another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataKey:
    key: bytes = field(repr=False)
    envelope: KeyEnvelope


def make_data_key(key: bytes, *, key_id: str, wrapped: bytes) -> DataKey:
    """Make a data key from its wrapped form; raises `Misconfigured` if id and wrapped key don't fit into a header."""
    envelope = KeyEnvelope(key_id, wrapped, check_of(key))
    if len(encode_envelope(envelope)) > MAX_ENVELOPE_BYTES:
        raise Misconfigured(f"the id of the encryption key is too long; key_id={key_id[:100]}")
    return DataKey(key=key, envelope=envelope)


def check_of(key: bytes) -> bytes:
    return hmac.digest(key, b"streamhouse data key", "sha256")[:8]


def encode_envelope(envelope: KeyEnvelope) -> bytes:
    key_id = envelope.key_id.encode()
    return _ENVELOPE.pack(len(key_id), len(envelope.wrapped), envelope.check) + key_id + envelope.wrapped


def decode_envelope(data: Buffer) -> KeyEnvelope | None:
    """Decode the envelope at the start of these bytes; None if there is none."""
    if len(data) < _ENVELOPE.size:
        return None
    id_bytes, wrapped_bytes, check = _ENVELOPE.unpack_from(data)
    wrapped_at = _ENVELOPE.size + id_bytes
    if wrapped_at + wrapped_bytes > len(data):
        return None
    key_id = bytes(data[_ENVELOPE.size : wrapped_at]).decode(errors="replace")
    return KeyEnvelope(key_id, bytes(data[wrapped_at : wrapped_at + wrapped_bytes]), check)


# --- objects


def stored_size(size_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> int:
    """The size of an encrypted object."""
    return 2 * HEADER_BYTES + size_bytes + -(-size_bytes // chunk_bytes) * TAG_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedHeader:
    size_bytes: int
    """Before encryption."""
    salt: bytes
    envelope: KeyEnvelope
    chunk_bytes: int = CHUNK_BYTES

    @property
    def stored_bytes(self) -> int:
        """The size of the whole encrypted object."""
        return stored_size(self.size_bytes, self.chunk_bytes)

    def chunks_of(self, start: int, end: int) -> range:
        """The chunks with the bytes [start, end), which may extend beyond the object."""
        end = min(end, self.size_bytes)
        return range(start // self.chunk_bytes, -(-end // self.chunk_bytes)) if start < end else range(0)

    def stored_range(self, chunks: range) -> tuple[int, int]:
        """The range of these chunks in the encrypted object."""
        sealed = self.chunk_bytes + TAG_BYTES
        last = HEADER_BYTES + chunks.stop * sealed
        return HEADER_BYTES + chunks.start * sealed, min(last, self.stored_bytes - HEADER_BYTES)


def encode_header(header: EncryptedHeader) -> bytes:
    body = _fixed(header) + encode_envelope(header.envelope)
    body = body.ljust(_CRC_AT, b"\0")
    return body + _CRC.pack(crc32c(body))


def _fixed(header: EncryptedHeader) -> bytes:
    return _FIXED.pack(MAGIC, VERSION, header.chunk_bytes, header.size_bytes, header.salt)


def decode_header(data: Buffer, *, key: str) -> EncryptedHeader | None:
    """Decode a header; None if it is none, or damaged. Raises `Misconfigured` for a later version."""
    copy = memoryview(data)[:HEADER_BYTES]
    if len(copy) < HEADER_BYTES or bytes(copy[: len(MAGIC)]) != MAGIC:
        return None
    if _CRC.unpack_from(copy, _CRC_AT)[0] != crc32c(copy[:_CRC_AT]):
        return None
    _, version, chunk_bytes, size_bytes, salt = _FIXED.unpack_from(copy)
    if version > VERSION:
        raise Misconfigured(
            f"object is encrypted in a later format; key={key} version={version} known={VERSION} do=upgrade streamhouse"
        )
    envelope = decode_envelope(copy[_FIXED.size : _CRC_AT])
    if envelope is None or not 0 < chunk_bytes <= _MAX_CHUNK_BYTES:
        return None
    return EncryptedHeader(size_bytes=size_bytes, salt=salt, envelope=envelope, chunk_bytes=chunk_bytes)


class ObjectCipher:
    """Encrypts and decrypts one object. Its key in the store is authenticated, so a copy under another key can't be
    decrypted."""

    def __init__(self, header: EncryptedHeader, data_key: bytes, *, object_key: str) -> None:
        self.header = header
        self._cipher = aes_gcm(derive(data_key, header.salt, _fixed(header) + object_key.encode()))

    def __repr__(self) -> str:
        return f"<ObjectCipher key_id={self.header.envelope.key_id} bytes={self.header.size_bytes}>"

    def encrypt(self, body: Sequence[Buffer]) -> bytearray:
        """Encrypt the object. Call it in a thread if it is large."""
        header = encode_header(self.header)
        out = bytearray(self.header.stored_bytes)
        view = memoryview(out)
        view[:HEADER_BYTES] = view[-HEADER_BYTES:] = header
        position = HEADER_BYTES
        for number, chunk in enumerate(_cut(body, self.header.chunk_bytes)):
            end = position + len(chunk) + TAG_BYTES
            self._cipher.encrypt_into(_nonce(number), chunk, None, view[position:end])
            position = end
            _release_gil(number)
        return out

    def decrypt(self, stored: Buffer, chunks: range) -> tuple[memoryview, int]:
        """Decrypt these chunks; returns the bytes, and the number of damaged chunks."""
        from cryptography.exceptions import InvalidTag

        sealed = self.header.chunk_bytes + TAG_BYTES
        expected = self.header.stored_range(chunks)
        out = bytearray(max(0, expected[1] - expected[0] - len(chunks) * TAG_BYTES))
        view, source, position, damaged = memoryview(out), memoryview(stored), 0, 0
        for number in range(len(chunks)):
            chunk = source[number * sealed : (number + 1) * sealed]
            room = view[position : position + self.header.chunk_bytes]
            try:
                if len(chunk) != len(room) + TAG_BYTES:
                    raise InvalidTag
                self._cipher.decrypt_into(_nonce(chunks.start + number), chunk, None, room)
            except InvalidTag:
                room[:] = DAMAGED * len(room)
                damaged += 1
            position += len(room)
            _release_gil(number)
        return view, damaged


def new_cipher(data_key: DataKey, *, object_key: str, size_bytes: int) -> ObjectCipher:
    """The cipher of a new object."""
    header = EncryptedHeader(size_bytes=size_bytes, salt=os.urandom(SALT_BYTES), envelope=data_key.envelope)
    return ObjectCipher(header, data_key.key, object_key=object_key)


def aes_gcm(key: bytes) -> "AESGCM":
    """The library is imported for the first cipher: an agent that encrypts nothing does without its 7 MB."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def derive(data_key: bytes, salt: bytes, info: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=info).derive(data_key)


def _nonce(number: int) -> bytes:
    return number.to_bytes(_NONCE_BYTES, "big")


def _cut(body: Sequence[Buffer], size: int) -> Iterator[Buffer]:
    """Cut the body into chunks; only chunks that span several buffers are copied."""
    held = bytearray()
    for buffer in body:
        view, at = memoryview(buffer).cast("B"), 0
        while at < len(view):
            taken = view[at : at + size - len(held)]
            at += len(taken)
            if not held and len(taken) == size:
                yield taken
                continue
            held += taken
            if len(held) == size:
                yield held
                held = bytearray()
    if held:
        yield held


def _release_gil(number: int) -> None:
    """Release the GIL after some chunks, because the ciphers hold it and the event loop would wait for it."""
    if number % _CHUNKS_AT_A_TIME == _CHUNKS_AT_A_TIME - 1:
        time.sleep(0)


# --- entries of WAL files


class EntryCipher:
    """Encrypts and decrypts the batches of one WAL file. The position in the file is the nonce."""

    def __init__(self, data_key: bytes, salt: bytes, *, session: str, sequence: int) -> None:
        info = b"streamhouse wal file" + sequence.to_bytes(8, "big") + session.encode()
        self._cipher = aes_gcm(derive(data_key, salt, info))

    def encrypt(self, batch: Buffer, *, position: int, about: bytes) -> bytes:
        return self._cipher.encrypt(_nonce(position), batch, about)

    def decrypt(self, stored: Buffer, *, position: int, about: bytes) -> bytes:
        """Decrypt a batch; raises `CorruptObject` if it, or the header of its entry, was changed."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(_nonce(position), stored, about)
        except InvalidTag:
            raise CorruptObject("wal", why=f"the entry at {position} doesn't authenticate") from None
