"""Encrypted objects: readers see what was written, the bucket doesn't, and nobody takes a lost key for damage."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from crc32c import crc32c

from streamhouse.config import EncryptionSettings
from streamhouse.errors import DataKeyUnavailable, Misconfigured, Unavailable
from streamhouse.format.encryption import CHUNK_BYTES, DAMAGED, HEADER_BYTES, TAG_BYTES
from streamhouse.stores.encryption.base import WrappedKey
from streamhouse.stores.encryption.data_keys import DataKeys
from streamhouse.stores.encryption.key_file import KeyFile
from streamhouse.stores.objects import encrypted
from streamhouse.stores.objects.base import Buffers, ObjectMeta, ObjectStore
from streamhouse.stores.objects.encrypted import EncryptedStore, UnencryptedStore
from streamhouse.stores.objects.memory import MemoryObjectStore
from streamhouse.stores.objects.wrapping_keys import record_key, recorded_keys, require_keys
from tests.contracts.clocks import ManualClock
from tests.contracts.object_store import ObjectStoreContract
from tests.support.at_rest import decrypt_object, key_file, keys_of

SEGMENT = "segments/s-00000000000000000000000000000001/00000000000000000001"
OTHER = "segments/s-00000000000000000000000000000001/00000000000000000002"
WAL = "wal/s-00000000000000000000000000000001/00000000000000000001"


class CountingStore(MemoryObjectStore):
    """Counts reads, and gives its objects to be damaged."""

    reads = 0

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        self.reads += 1
        return await super().get_range(key, start, end)

    def body(self, key: str) -> bytes:
        return self._objects[key].body

    async def replace(self, key: str, body: bytes) -> None:
        await self.delete(key)
        await self.put_new(key, [body])


class AwayService:
    """A key service that can be away."""

    def __init__(self, inner: KeyFile) -> None:
        self.inner, self.is_away, self.wraps, self.unwraps = inner, False, 0, 0

    async def wrap(self, key: bytes) -> WrappedKey:
        self.wraps += 1
        if self.is_away:
            raise Unavailable("the key service can't be reached")
        return await self.inner.wrap(key)

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        self.unwraps += 1
        if self.is_away:
            raise Unavailable("the key service can't be reached")
        return await self.inner.unwrap(wrapped)

    async def aclose(self) -> None:
        await self.inner.aclose()


class World:
    def __init__(self, path: Path, **settings: object) -> None:
        self.clock = ManualClock()
        self.bucket = CountingStore(self.clock)
        self.file = path / "keys"
        key_file(self.file, "old")
        self.settings = EncryptionSettings(kms="file", key=str(self.file), **settings)  # type: ignore[arg-type]

    def agent(self) -> tuple[EncryptedStore, DataKeys, AwayService]:
        service = AwayService(KeyFile(self.file))
        keys = DataKeys(service, self.settings, clock=self.clock)
        return EncryptedStore(self.bucket, keys, self.clock), keys, service


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class TestEncryptedStore(ObjectStoreContract):
    """The contract, with every object encrypted."""

    @pytest.fixture
    def store(self, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
        monkeypatch.setattr(encrypted, "may_be_encrypted", lambda key: True)
        keys = DataKeys(KeyFile(Path(key_file(tmp_path / "keys", "k1"))), EncryptionSettings(kms="file"), clock=clock)
        return PlainSizes(MemoryObjectStore(clock), keys, clock)


class PlainSizes(EncryptedStore):
    """Listings have the sizes of what is stored; the contract wants those of what was written."""

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        async for meta in super().list(prefix):
            yield await self.head(meta.key)


class TestUnencryptedStore(ObjectStoreContract):
    @pytest.fixture
    def store(self, clock: ManualClock) -> ObjectStore:
        return UnencryptedStore(MemoryObjectStore(clock))


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 5])
async def test_an_object_is_what_its_description_says(world: World, size: int) -> None:
    store, _, _ = world.agent()
    body = os.urandom(size)
    await store.put_new(SEGMENT, [body[: size // 3], body[size // 3 :]])
    stored = world.bucket.body(SEGMENT)
    assert decrypt_object(stored, SEGMENT, keys_of("old")) == ("old", body)
    reader, _, _ = world.agent()
    for start in (0, size // 2, CHUNK_BYTES - 3, CHUNK_BYTES, size):
        assert await reader.get_range(SEGMENT, start, start + 70_000) == body[start : start + 70_000]
    assert await reader.get_suffix(SEGMENT, 100) == body[-100:]
    assert (await reader.head(SEGMENT)).size_bytes == size


async def test_segments_and_logs_are_encrypted_and_seals_and_the_rest_are_not(world: World) -> None:
    store, _, _ = world.agent()
    secret = b"the canary sings" * 20
    for key in (SEGMENT, WAL, f"placed/{'0' * 32}/1/x", f"aside/{WAL}"):
        await store.put_new(key, [secret])
        assert b"canary" not in world.bucket.body(key)
    for key, body in ((f"{WAL}0", bytes(256)), ("cluster/id", b"id"), ("topics/1", secret)):
        await store.put_new(key, [body])
        assert world.bucket.body(key) == body


async def test_what_was_written_before_and_after_encryption_is_read(world: World) -> None:
    plain = UnencryptedStore(world.bucket)
    body = b"STRMHSEG" + os.urandom(200_000)
    await plain.put_new(OTHER, [body])
    store, _, _ = world.agent()
    await store.put_new(SEGMENT, [body])
    for key in (SEGMENT, OTHER):
        for start, end in ((0, 10), (5, 150_000), (199_000, 300_000)):
            assert await store.get_range(key, start, end) == body[start:end]
        assert await store.get_suffix(key, 50) == body[-50:]
        assert (await store.head(key)).size_bytes == len(body)


async def test_new_objects_are_plain_when_only_reading_is_wanted(tmp_path: Path) -> None:
    world = World(tmp_path, new_objects=False)
    store, _, _ = world.agent()
    await store.put_new(SEGMENT, [b"plain"])
    assert world.bucket.body(SEGMENT) == b"plain"


async def test_a_read_costs_one_more_request_once_per_object_and_none_from_its_start(world: World) -> None:
    store, _, _ = world.agent()
    for key in (SEGMENT, OTHER):
        await store.put_new(key, [os.urandom(300_000)])
    await store.get_range(SEGMENT, 1000, 2000)
    assert world.bucket.reads == 1  # its writer knows it
    reader, _, _ = world.agent()
    world.bucket.reads = 0
    await reader.get_range(SEGMENT, 1000, 2000)
    assert world.bucket.reads == 2
    await reader.get_range(SEGMENT, 100_000, 200_000)
    assert world.bucket.reads == 3
    await reader.get_range(OTHER, 0, 300_000)
    assert world.bucket.reads == 4
    await UnencryptedStore(world.bucket).put_new(WAL, [b"SHOUSWOB" + bytes(1000)])
    await reader.get_range(WAL, 0, 1000)
    assert world.bucket.reads == 5


# --- damage, and those who do it on purpose


async def test_a_wrong_bit_damages_its_chunk_alone_and_is_never_returned(world: World) -> None:
    store, _, _ = world.agent()
    body = os.urandom(5 * CHUNK_BYTES)
    await store.put_new(SEGMENT, [body])
    stored = bytearray(world.bucket.body(SEGMENT))
    stored[HEADER_BYTES + 2 * (CHUNK_BYTES + TAG_BYTES) + 77] ^= 1
    await world.bucket.replace(SEGMENT, bytes(stored))
    reader, _, _ = world.agent()
    read = await reader.get_range(SEGMENT, 0, len(body))
    hole = slice(2 * CHUNK_BYTES, 3 * CHUNK_BYTES)
    assert read[hole] == DAMAGED * CHUNK_BYTES
    assert (read[: hole.start], read[hole.stop :]) == (body[: hole.start], body[hole.stop :])
    assert reader.damaged_chunks == 1


@pytest.mark.parametrize("at", [0, 3, 20, 30, 60, 100, 1023])
async def test_a_damaged_header_costs_nothing(world: World, at: int) -> None:
    store, _, _ = world.agent()
    await store.put_new(SEGMENT, [b"records" * 1000])
    stored = bytearray(world.bucket.body(SEGMENT))
    stored[at] ^= 0x40
    await world.bucket.replace(SEGMENT, bytes(stored))
    reader, _, _ = world.agent()
    assert await reader.get_range(SEGMENT, 7, 14) == b"records"
    assert (await reader.head(SEGMENT)).size_bytes == 7000


async def test_chunks_and_objects_can_not_be_exchanged(world: World) -> None:
    store, _, _ = world.agent()
    await store.put_new(SEGMENT, [b"a" * 2 * CHUNK_BYTES])
    await store.put_new(OTHER, [b"b" * 2 * CHUNK_BYTES])
    stored, sealed = world.bucket.body(SEGMENT), CHUNK_BYTES + TAG_BYTES
    head, first, second = stored[:HEADER_BYTES], stored[HEADER_BYTES:][:sealed], stored[HEADER_BYTES:][sealed:]
    await world.bucket.replace(SEGMENT, head + second[:sealed] + first + second[sealed:])
    await world.bucket.replace(OTHER, stored)
    reader, _, _ = world.agent()
    for key in (SEGMENT, OTHER):
        assert await reader.get_range(key, 0, 2 * CHUNK_BYTES) == DAMAGED * 2 * CHUNK_BYTES


async def test_a_size_that_was_changed_authenticates_nothing(world: World) -> None:
    """Cutting the last chunk off, with a header that agrees."""
    store, _, _ = world.agent()
    await store.put_new(SEGMENT, [b"a" * CHUNK_BYTES, b"b" * 10])
    header = bytearray(world.bucket.body(SEGMENT)[:HEADER_BYTES])
    header[16:24] = CHUNK_BYTES.to_bytes(8, "big")
    header[-4:] = crc32c(header[:-4]).to_bytes(4, "big")
    body = world.bucket.body(SEGMENT)[HEADER_BYTES:][: CHUNK_BYTES + TAG_BYTES]
    await world.bucket.replace(SEGMENT, bytes(header) + body + bytes(header))
    reader, _, _ = world.agent()
    assert await reader.get_range(SEGMENT, 0, 2 * CHUNK_BYTES) == DAMAGED * CHUNK_BYTES


async def test_a_cut_object_is_short(world: World) -> None:
    store, _, _ = world.agent()
    await store.put_new(SEGMENT, [os.urandom(3 * CHUNK_BYTES)])
    await world.bucket.replace(SEGMENT, world.bucket.body(SEGMENT)[:-50_000])
    reader, _, _ = world.agent()
    assert (await reader.head(SEGMENT)).size_bytes < 3 * CHUNK_BYTES


# --- keys


async def test_a_missing_or_wrong_key_is_an_error_that_names_key_and_object(world: World) -> None:
    store, _, _ = world.agent()
    await store.put_new(SEGMENT, [b"x" * 1000])
    key_file(world.file, "new")
    reader, _, _ = world.agent()
    with pytest.raises(DataKeyUnavailable, match=f"where={SEGMENT} key_id=old why=the key is not in the file"):
        await reader.get_range(SEGMENT, 0, 10)
    world.file.write_text("old " + world.file.read_text().split()[1])
    reader, _, _ = world.agent()
    with pytest.raises(DataKeyUnavailable, match=r"key_id=old why=the file .* has another key of this id"):
        await reader.get_range(SEGMENT, 500, 510)
    off = UnencryptedStore(world.bucket)
    for read in (off.get_range(SEGMENT, 0, 10), off.get_suffix(SEGMENT, 2000)):
        with pytest.raises(DataKeyUnavailable, match="key_id=old why=the object is encrypted"):
            await read


async def test_a_new_key_is_used_for_new_objects_and_old_ones_name_theirs(world: World) -> None:
    store, keys, _ = world.agent()
    await store.put_new(SEGMENT, [b"one"])
    key_file(world.file, "new", "old")
    await keys.renew()
    await store.put_new(OTHER, [b"two"])
    both = keys_of("old", "new")
    assert decrypt_object(world.bucket.body(SEGMENT), SEGMENT, both) == ("old", b"one")
    assert decrypt_object(world.bucket.body(OTHER), OTHER, both) == ("new", b"two")
    reader, _, _ = world.agent()
    assert await reader.get_range(SEGMENT, 0, 3) + await reader.get_range(OTHER, 0, 3) == b"onetwo"


async def test_a_data_key_is_replaced_when_it_is_old(world: World) -> None:
    _, keys, service = world.agent()
    first = await keys.first()
    assert (await keys.first()) is first
    world.clock.advance(ms=3_601_000)
    assert keys.current() is first  # for this once, while the next one is made
    for _ in range(100):
        if keys.current() is not first:
            break
        await _turn()
    assert keys.current() is not first
    assert service.wraps == 2


async def test_while_the_key_service_is_away_the_key_serves_twice_as_long_and_then_writing_waits(world: World) -> None:
    store, keys, service = world.agent()
    await store.put_new(SEGMENT, [b"x"])
    service.is_away = True
    world.clock.advance(ms=7_100_000)
    await store.put_new(OTHER, [b"y"])
    await _turn()
    assert "can't be reached" in keys.why_stale
    world.clock.advance(ms=200_000)
    with pytest.raises(DataKeyUnavailable, match="can't be reached") as refused:
        await store.put_new(WAL, [b"z" * 300])
    assert refused.value.is_away
    service.is_away = False
    world.clock.advance(ms=2_000)
    with pytest.raises(DataKeyUnavailable):
        await store.put_new(WAL, [b"z" * 300])
    for _ in range(100):
        await _turn()
        if not keys.why_stale:
            break
    await store.put_new(WAL, [b"z" * 300])


async def test_unwrapped_keys_are_remembered_for_a_time_and_up_to_a_number(tmp_path: Path) -> None:
    world = World(tmp_path, cached_keys=2, cached_key_s=100.0)
    for number in range(4):
        writer, _, _ = world.agent()
        await writer.put_new(f"segments/{number}", [b"x" * 100])
    reader, keys, service = world.agent()
    for _ in range(3):
        await reader.get_range("segments/0", 0, 10)
    assert service.unwraps == 1
    world.clock.advance(ms=101_000)
    await reader.get_range("segments/0", 0, 10)
    assert service.unwraps == 2
    for number in range(4):
        await reader.get_range(f"segments/{number}", 0, 10)
    assert len(keys._unwrapped) == 2
    service.is_away = True
    world.clock.advance(ms=101_000)
    for _ in range(5):
        with pytest.raises(DataKeyUnavailable, match="can't be reached"):
            await reader.get_range("segments/0", 0, 10)
    assert service.unwraps == 6  # one more than before: it isn't asked again at once


# --- recorded keys


async def test_an_agent_does_not_start_without_a_key_that_records_need(world: World) -> None:
    store, keys, _ = world.agent()
    keys.before_use = lambda envelope: record_key(world.bucket, envelope)
    await store.put_new(SEGMENT, [b"x"])
    (recorded,) = await recorded_keys(world.bucket)
    assert recorded.envelope.key_id == "old"
    await require_keys(world.bucket, keys)
    with pytest.raises(Misconfigured, match=f"key_id=old recorded_in={recorded.object_key} why=no key service is set"):
        await require_keys(world.bucket, None)
    key_file(world.file, "new")
    _, others, _ = world.agent()
    with pytest.raises(Misconfigured, match=r"key_id=old .* why=the key is not in the file"):
        await require_keys(world.bucket, others)
    key_file(world.file, "new", "old")
    _, both, service = world.agent()
    await require_keys(world.bucket, both)
    world.clock.advance(ms=601_000)
    service.is_away = True
    with pytest.raises(DataKeyUnavailable, match="can't be reached"):
        await require_keys(world.bucket, both)


async def test_a_key_is_recorded_before_anything_is_encrypted_with_it(world: World) -> None:
    store, keys, _ = world.agent()

    class Full(MemoryObjectStore):
        async def put_new(self, key: str, body: Buffers) -> None:
            raise Unavailable("full")

    keys.before_use = lambda envelope: record_key(Full(world.clock), envelope)
    with pytest.raises(Unavailable, match="full"):
        await store.put_new(SEGMENT, [b"x"])
    assert [meta.key async for meta in world.bucket.list("")] == []


@pytest.mark.parametrize(
    "text",
    ["", "one", "one AAAA", "one two three", f"a {'A' * 44}", "# none\n", "a " + "A" * 43 + "=\na " + "A" * 43 + "="],
)
async def test_a_file_without_keys_is_refused_without_its_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(DataKeyUnavailable) as refused:
        await KeyFile(path).wrap(bytes(32))
    assert "AAAA" not in str(refused.value)


async def _turn() -> None:
    """Let a task run, and the thread that reads the file."""
    await asyncio.sleep(0.01)
