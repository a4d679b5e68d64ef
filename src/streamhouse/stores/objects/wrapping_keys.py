"""Wrapping keys that objects of a store may need: an object for each, with a wrapped data key to try it on.

Data path   none; before a key wraps its first data key, at an agent's start, and for `streamhouse doctor`
Owns        the objects below `encryption/`
Leaves      trying keys to `stores.encryption.data_keys`
Invariant   no object is encrypted before the key that wraps its data key is recorded, so that an agent without it
            doesn't start, instead of finding records that it can't read
"""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from streamhouse.errors import CorruptObject, DataKeyUnavailable, Misconfigured
from streamhouse.format.encryption import KeyEnvelope
from streamhouse.format.object_keys import ENCRYPTION_KEYS_PREFIX, encryption_key
from streamhouse.stores.encryption.data_keys import DataKeys
from streamhouse.stores.objects.base import ObjectExists, ObjectStore

MAX_RECORDED: Final = 1000
_MAX_BYTES: Final = 16 * 1024


class RecordedKey(NamedTuple):
    object_key: str
    envelope: KeyEnvelope


async def record_key(objects: ObjectStore, envelope: KeyEnvelope) -> None:
    """Record the key that wrapped this data key, unless it is recorded."""
    wrapped = base64.b64encode(envelope.wrapped).decode()
    body = json.dumps({"key_id": envelope.key_id, "wrapped": wrapped, "check": envelope.check.hex()})
    try:
        await objects.put_new(encryption_key(envelope.key_id), [body.encode()])
    except ObjectExists:
        return


async def recorded_keys(objects: ObjectStore) -> Sequence[RecordedKey]:
    """The first `MAX_RECORDED` recorded keys."""
    found: list[RecordedKey] = []
    async for meta in objects.list(ENCRYPTION_KEYS_PREFIX):
        if len(found) == MAX_RECORDED:
            break
        body = await objects.get_range(meta.key, 0, _MAX_BYTES)
        try:
            content = json.loads(body)
            wrapped, check = base64.b64decode(content["wrapped"]), bytes.fromhex(content["check"])
            found.append(RecordedKey(meta.key, KeyEnvelope(str(content["key_id"]), wrapped, check)))
        except (ValueError, KeyError, TypeError, binascii.Error):
            raise CorruptObject(meta.key, why="it is no record of an encryption key") from None
    return found


async def try_keys(
    objects: ObjectStore, keys: DataKeys | None
) -> Sequence[tuple[RecordedKey, DataKeyUnavailable | None]]:
    """Every recorded key, with why it can't be used."""
    tried: list[tuple[RecordedKey, DataKeyUnavailable | None]] = []
    for recorded in await recorded_keys(objects):
        key_id = recorded.envelope.key_id
        if keys is None:
            why = "no key service is set (encryption.kms)"
            tried.append((recorded, DataKeyUnavailable(recorded.object_key, key_id=key_id, why=why)))
            continue
        try:
            await keys.unwrap(recorded.envelope, where=recorded.object_key)
        except DataKeyUnavailable as error:
            tried.append((recorded, error))
        else:
            tried.append((recorded, None))
    return tried


async def require_keys(objects: ObjectStore, keys: DataKeys | None) -> None:
    """Raise `Misconfigured` if a recorded key is missing or another one, `DataKeyUnavailable` while its service is
    away."""
    for _, error in await try_keys(objects, keys):
        if error is None:
            continue
        if error.is_away:
            raise error
        raise Misconfigured(
            f"records in the store are encrypted with a key that isn't here; key_id={error.key_id} "
            f"recorded_in={error.where} why={error.why} do=give encryption.key this key back; if no object needs it "
            "any more, delete the object that records it"
        )
