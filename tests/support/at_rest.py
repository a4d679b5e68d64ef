"""Decrypts bytes at rest as `docs/formats/encryption.md` describes them, without anything of the product.

Only AES-GCM itself comes from a library.
"""

import base64
import hashlib
import hmac
import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Keys = dict[str, bytes]


def key_file(path: Path, *ids: str) -> str:
    """A file with keys of these ids, the newest first; each id has always the same key."""
    lines = [f"{each} {base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}" for each in ids]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def keys_of(*ids: str) -> Keys:
    return {each: hashlib.sha256(each.encode()).digest() for each in ids}


def hkdf(key: bytes, salt: bytes, info: bytes) -> bytes:
    """RFC 5869 with SHA-256, 32 bytes."""
    extracted = hmac.digest(salt, key, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")


def unwrap(envelope: bytes, keys: Keys) -> tuple[str, bytes]:
    """The wrapping key's id, and the data key."""
    id_bytes, wrapped_bytes = struct.unpack_from(">HH", envelope)
    check = envelope[4:12]
    key_id = envelope[12 : 12 + id_bytes].decode()
    wrapped = envelope[12 + id_bytes : 12 + id_bytes + wrapped_bytes]
    data_key = AESGCM(keys[key_id]).decrypt(wrapped[:12], wrapped[12:], key_id.encode())
    assert hmac.digest(data_key, b"streamhouse data key", "sha256")[:8] == check
    return key_id, data_key


def decrypt_object(stored: bytes, object_key: str, keys: Keys) -> tuple[str, bytes]:
    """The id of the wrapping key, and the object as it was before encryption."""
    header = stored[:1024]
    assert header == stored[-1024:]
    assert header[:8] == b"STRMHENC"
    version, chunk_bytes, size = struct.unpack_from(">H2xIQ", header, 8)
    assert version == 1
    key_id, data_key = unwrap(header[56:1020], keys)
    cipher = AESGCM(hkdf(data_key, header[24:56], header[:56] + object_key.encode()))
    plain, body, number = b"", stored[1024:-1024], 0
    while body:
        chunk, body = body[: chunk_bytes + 16], body[chunk_bytes + 16 :]
        plain += cipher.decrypt(number.to_bytes(12, "big"), chunk, None)
        number += 1
    assert len(plain) == size
    return key_id, plain


def decrypt_wal_file(stored: bytes, keys: Keys) -> tuple[str, list[bytes]]:
    """The id of the wrapping key, and the batches of a file of the log on disk."""
    assert stored[:8] == b"SHOUSWAL"
    (version,) = struct.unpack_from(">H", stored, 8)
    assert version == 2
    mark, sequence = stored[14:22], stored[22:30]
    session = stored[31 : 31 + stored[30]]
    salt_at = 31 + len(session)
    salt = stored[salt_at : salt_at + 32]
    (length,) = struct.unpack_from(">H", stored, salt_at + 32)
    key_id, data_key = unwrap(stored[salt_at + 34 : salt_at + 34 + length], keys)
    cipher = AESGCM(hkdf(data_key, salt, b"streamhouse wal file" + sequence + session))
    batches, position = [], 8192
    while position < len(stored):
        assert stored[position : position + 8] == mark
        (size,) = struct.unpack_from(">I", stored, position + 12)
        about, at = stored[position + 12 : position + 68], position + 68
        batches.append(cipher.decrypt(position.to_bytes(12, "big"), stored[at : at + size], about))
        position = at + size
    return key_id, batches
