"""Encrypted logs: the promises of every log, and what becomes of one whose key is away, lost or another one."""

import os
import random
import struct
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from streamhouse.broker.dependencies import WalFactory
from streamhouse.broker.wal.disk_recovery import DiskWalFactory, DiskWalRecovery
from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.clock import Ids, SystemClock
from streamhouse.config import EncryptionSettings, WalSettings
from streamhouse.errors import DataKeyUnavailable
from streamhouse.format.wal_file import ENTRY_HEADER_BYTES, FILE_HEADER_BYTES, WalEntry, summarize
from streamhouse.stores.encryption.data_keys import DataKeys
from streamhouse.stores.encryption.key_file import KeyFile
from streamhouse.stores.local_files import LocalFiles
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.encrypted import EncryptedStore, UnencryptedStore
from streamhouse.stores.objects.memory import MemoryObjectStore
from tests.broker.wal.object_support import ALIVE, DEAD, Bucket
from tests.broker.wal.support import ManualClock, entry, plain
from tests.contracts.wal import MakeWals, WalContract
from tests.support.at_rest import decrypt_wal_file, key_file, keys_of


async def opened_keys(path: Path, *ids: str) -> DataKeys:
    keys = DataKeys(KeyFile(Path(key_file(path, *ids))), EncryptionSettings(kms="file"), clock=SystemClock())
    await keys.renew()
    return keys


def disk_wals(root: Path, keys: DataKeys | None, **settings: Any) -> DiskWalFactory:
    chosen, ids = WalSettings(**settings), Ids(random.Random(1))
    return DiskWalFactory(root, chosen, files=LocalFiles(), clock=SystemClock(), ids=ids, keys=keys)


def object_wals(store: ObjectStore, **settings: Any) -> ObjectWalFactory:
    chosen = WalSettings(kind="object", **{"window_ms": 0, **settings})
    return ObjectWalFactory(store, chosen, clock=SystemClock(), ids=Ids(random.Random(1)))


class TestEncryptedDiskWal(WalContract):
    @pytest.fixture
    async def wals(self, tmp_path: Path) -> MakeWals:
        return partial(disk_wals, tmp_path / "wal", await opened_keys(tmp_path / "keys", "k1"))


class TestEncryptedObjectWal(WalContract):
    @pytest.fixture
    async def wals(self, tmp_path: Path) -> MakeWals:
        store = EncryptedStore(
            MemoryObjectStore(SystemClock()), await opened_keys(tmp_path / "keys", "k1"), SystemClock()
        )
        return partial(object_wals, store)


async def left(wals: WalFactory, count: int) -> list[WalEntry]:
    """A session that ends without a word."""
    wal = await wals.open(DEAD)
    written = [entry(offset, b"the canary sings %d" % offset) for offset in range(count)]
    for each in written:
        await wal.append([each])
    return written


async def entries_of(wals: Any) -> list[WalEntry]:
    async with wals.read(DEAD) as reading:
        results = [plain(each) async for each in reading.entries()]
        assert reading.damage.is_clean
        return results


async def test_objects_of_a_dead_session_are_not_sealed_deleted_or_skipped_without_their_key(tmp_path: Path) -> None:
    bucket = Bucket(ManualClock())
    keys = await opened_keys(tmp_path / "keys", "k1")
    written = await left(object_wals(EncryptedStore(bucket, keys, SystemClock())), 5)
    before = {number: await bucket.bytes_of(number) for number in await bucket.numbers()}
    assert len(before) == 5
    assert not any(b"canary" in body for body in before.values())
    lost = EncryptedStore(bucket, await opened_keys(tmp_path / "others", "k2"), SystemClock())
    for store in (lost, UnencryptedStore(bucket)):
        wals = object_wals(store)
        await wals.open(ALIVE)
        with pytest.raises(DataKeyUnavailable, match=rf"where=wal/{DEAD}/0{{20}} key_id=k1"):
            await entries_of(wals)
        assert {number: await bucket.bytes_of(number) for number in await bucket.numbers()} == before
        assert bucket.deleted == []
    again = EncryptedStore(bucket, await opened_keys(tmp_path / "both", "k2", "k1"), SystemClock())
    assert await entries_of(object_wals(again)) == written


async def test_a_log_on_disk_is_left_as_it_is_without_its_key(tmp_path: Path) -> None:
    root = tmp_path / "wal"
    wal = await disk_wals(root, await opened_keys(tmp_path / "keys", "k1"), fsync="always").open(DEAD)
    written = [entry(offset, b"the canary sings %d" % offset) for offset in range(5)]
    await wal.append(written)
    (root / DEAD).rename(tmp_path / "kept")  # its lock is held here
    (file,) = (tmp_path / "kept").glob("*.wal")
    before = file.read_bytes()
    assert b"canary" not in before
    assert decrypt_wal_file(before, keys_of("k1")) == ("k1", [each.batch for each in written])
    await wal.aclose(remove=False)
    (root / DEAD).mkdir(parents=True)
    (root / DEAD / file.name).write_bytes(before)
    for keys in (await opened_keys(tmp_path / "others", "k2"), None):
        with pytest.raises(DataKeyUnavailable, match=f"where={DEAD}/{file.name} key_id=k1"):
            await entries_of(DiskWalRecovery(root, LocalFiles(), keys))
        assert (root / DEAD / file.name).read_bytes() == before
    both = await opened_keys(tmp_path / "both", "k2", "k1")
    assert await entries_of(DiskWalRecovery(root, LocalFiles(), both)) == written
    summary = summarize(before)  # `wal inspect` needs no key
    assert (summary.entries, summary.damage) == (5, ())


async def test_an_entry_that_was_changed_with_its_checksum_is_damage(tmp_path: Path) -> None:
    root, keys = tmp_path / "wal", await opened_keys(tmp_path / "keys", "k1")
    wal = await disk_wals(root, keys).open(DEAD)
    await wal.append([entry(offset, b"batch %d" % offset) for offset in range(3)])
    await wal.aclose(remove=False)
    (file,) = (root / DEAD).glob("*.wal")
    data = bytearray(file.read_bytes())
    second = FILE_HEADER_BYTES + ENTRY_HEADER_BYTES + len(b"batch 0") + 16
    data[second + 52 + 7] ^= 1  # the base offset
    end = second + ENTRY_HEADER_BYTES + len(b"batch 1") + 16
    struct.pack_into(">I", data, second + 8, crc32c(bytes(data[second + 12 : end])))
    file.write_bytes(data)
    async with DiskWalRecovery(root, LocalFiles(), keys).read(DEAD) as reading:
        assert [each.base async for each in reading.entries()] == [0, 2]
        assert (reading.damage.skipped, reading.damage.losses) == (1, 1)


async def test_a_new_data_key_begins_a_new_file(tmp_path: Path) -> None:
    """However small the file is: nothing is encrypted for longer with a key that was rotated."""
    root, clock = tmp_path / "wal", ManualClock()
    path = Path(key_file(tmp_path / "keys", "k1"))
    keys = DataKeys(KeyFile(path), EncryptionSettings(kms="file"), clock=clock)
    await keys.renew()
    wal = await disk_wals(root, keys).open(DEAD)
    for number in range(2):
        await wal.append([entry(number, b"small")])
    key_file(path, "k2", "k1")
    await keys.renew()
    for number in range(2, 4):
        await wal.append([entry(number, b"small")])
    os.truncate(path, 0)
    await clock.advance(7300)
    with pytest.raises(DataKeyUnavailable):
        wal.append([entry(4, b"small")])
    key_file(path, "k2", "k1")
    await wal.aclose(remove=False)
    used = [decrypt_wal_file(file.read_bytes(), keys_of("k1", "k2")) for file in sorted((root / DEAD).glob("*.wal"))]
    assert [(key, len(batches)) for key, batches in used] == [("k1", 2), ("k2", 2)]
    assert [each.base for each in await entries_of(DiskWalRecovery(root, LocalFiles(), keys))] == [0, 1, 2, 3]
    await keys.aclose()


async def test_appends_wait_for_a_key_and_nothing_is_lost(tmp_path: Path) -> None:
    """No file begins without a key; what was appended before stays, and appends go on with the next key."""
    root = tmp_path / "wal"
    clock = ManualClock()
    path = Path(key_file(tmp_path / "keys", "k1"))
    keys = DataKeys(KeyFile(path), EncryptionSettings(kms="file"), clock=clock)
    await keys.renew()
    wals = disk_wals(root, keys, file_bytes=FILE_HEADER_BYTES + 200)
    wal = await wals.open(DEAD)
    await wal.append([entry(0, bytes(150))])
    os.truncate(path, 0)
    await clock.advance(7300)
    with pytest.raises(DataKeyUnavailable):
        wal.append([entry(1, bytes(150))])
    key_file(path, "k2", "k1")
    await keys.renew()  # as the agent does in the background, each second
    await wal.append([entry(1, bytes(150))])
    await wal.aclose(remove=False)
    assert [each.base for each in await entries_of(DiskWalRecovery(root, LocalFiles(), keys))] == [0, 1]
    used = [decrypt_wal_file(file.read_bytes(), keys_of("k1", "k2"))[0] for file in sorted((root / DEAD).glob("*.wal"))]
    assert used == ["k1", "k2"]
    await keys.aclose()
