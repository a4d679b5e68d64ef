"""Recovery: who is dead, what they left, and what of it is damaged."""

import random

import pytest

from streamhouse.broker.wal.base import WalRecovery
from streamhouse.broker.wal.disk_recovery import DiskWalRecovery
from streamhouse.errors import Misconfigured
from streamhouse.format.wal_file import ENTRY_HEADER_BYTES, FILE_HEADER_BYTES, VERSION, FileHeader, encode_file_header
from streamhouse.model.names import SessionId
from streamhouse.stores.local_files import LockedError
from tests.broker.wal.support import OTHER, ROOT, SESSION, entry, open_wal, plain, read_all
from tests.simulation.files import SimFiles

ENTRY_BYTES = ENTRY_HEADER_BYTES + len(b"batch")


@pytest.fixture
def files() -> SimFiles:
    return SimFiles(random.Random(1))


async def leave_log(files: SimFiles, session: SessionId, count: int, file_bytes: int = 1 << 20) -> None:
    wal = await open_wal(files, session=session, fsync="always", file_bytes=file_bytes)
    for n in range(count):
        await wal.append([entry(n)])
    await wal.aclose(remove=False)


def rot(files: SimFiles, position: int, sequence: int = 0) -> None:
    path = ROOT / SESSION / f"{sequence:020d}.wal"
    data = bytearray(files.read(path))
    data[position] ^= 1
    files.overwrite(path, bytes(data))


async def test_a_session_is_dead_when_nobody_holds_its_lock(files: SimFiles) -> None:
    wals: WalRecovery = DiskWalRecovery(ROOT, files)
    assert await wals.dead_sessions(OTHER) == []
    wal = await open_wal(files)
    await wal.append([entry(0)])
    assert await wals.dead_sessions(OTHER) == []
    with pytest.raises(LockedError):
        await read_all(files)
    with pytest.raises(LockedError):
        await wals.remove(SESSION)
    after = files.kill()
    assert await DiskWalRecovery(ROOT, after).dead_sessions(OTHER) == [SESSION]
    assert await DiskWalRecovery(ROOT, after).dead_sessions(SESSION) == []
    assert await read_all(after) == [entry(0)]


async def test_a_log_is_held_while_it_is_read(files: SimFiles) -> None:
    await leave_log(files, SESSION, 1)
    async with DiskWalRecovery(ROOT, files).read(SESSION):
        assert await DiskWalRecovery(ROOT, files.another_process()).dead_sessions(OTHER) == []
        with pytest.raises(LockedError):
            await read_all(files.another_process())
    assert await DiskWalRecovery(ROOT, files.another_process()).dead_sessions(OTHER) == [SESSION]


async def test_a_session_whose_name_begins_with_another_is_left_alone(files: SimFiles) -> None:
    short, long = SessionId("orders-1"), SessionId("orders-1-2")
    await leave_log(files, short, 1)
    await leave_log(files, long, 2)
    wals = DiskWalRecovery(ROOT, files)
    assert await wals.dead_sessions(OTHER) == [short, long]
    assert len(await read_all(files, short)) == 1
    await wals.remove(short)
    assert await wals.dead_sessions(OTHER) == [long]
    assert len(await read_all(files, long)) == 2


async def test_what_is_no_log_is_left_alone(files: SimFiles) -> None:
    await leave_log(files, SESSION, 1)
    files.overwrite(ROOT / "stray", b"")
    files.make_dir(ROOT / "being-born")
    files.overwrite(ROOT / SESSION / "00000000000000000000.wal.bak", b"not ours")
    wals = DiskWalRecovery(ROOT, files)
    assert await wals.dead_sessions(OTHER) == [SESSION]
    assert await read_all(files) == [entry(0)]
    assert await read_all(files, SessionId("being-born")) == []


async def test_a_missing_log_is_empty_and_can_be_removed(files: SimFiles) -> None:
    wals = DiskWalRecovery(ROOT, files)
    assert await read_all(files) == []
    await wals.remove(SESSION)


async def test_a_log_is_removed_once_and_for_all(files: SimFiles) -> None:
    await leave_log(files, SESSION, 5, file_bytes=FILE_HEADER_BYTES + 100)
    async with DiskWalRecovery(ROOT, files).read(SESSION) as reading:
        assert len([each async for each in reading.entries()]) == 5
        await reading.remove()
        await reading.remove()
        assert [each async for each in reading.entries()] == []
    after = files.power_cut()
    assert after.list(ROOT) == []


async def test_a_log_whose_removal_was_interrupted_is_found_again(files: SimFiles) -> None:
    await leave_log(files, SESSION, 1)
    files.remove(ROOT / SESSION, ["00000000000000000000.wal"])
    wals = DiskWalRecovery(ROOT, files)
    assert await wals.dead_sessions(OTHER) == [SESSION]
    assert await read_all(files) == []
    await wals.remove(SESSION)
    assert files.list(ROOT) == []


async def test_files_are_read_in_order_of_their_numbers(files: SimFiles) -> None:
    await leave_log(files, SESSION, 12, file_bytes=FILE_HEADER_BYTES + ENTRY_BYTES)
    assert [each.base for each in await read_all(files)] == list(range(12))


async def test_more_entries_than_are_scanned_at_a_time_are_all_read(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="never")
    await wal.append([entry(n, b"") for n in range(2500)])
    await wal.aclose(remove=False)
    async with DiskWalRecovery(ROOT, files).read(SESSION) as reading:
        assert [each.base async for each in reading.entries()] == list(range(2500))
        assert reading.damage.entries == 2500
        assert reading.damage.is_clean


async def test_damage_is_skipped_counted_and_told_once(files: SimFiles, caplog: pytest.LogCaptureFixture) -> None:
    await leave_log(files, SESSION, 9, file_bytes=FILE_HEADER_BYTES + 3 * ENTRY_BYTES)
    rot(files, FILE_HEADER_BYTES + ENTRY_BYTES + 70, sequence=0)
    rot(files, FILE_HEADER_BYTES + 2 * ENTRY_BYTES, sequence=2)
    async with DiskWalRecovery(ROOT, files).read(SESSION) as reading:
        results = [plain(each) async for each in reading.entries()]
    assert results == [entry(n) for n in range(9) if n not in (1, 8)]
    damage = reading.damage
    assert (damage.files, damage.entries) == (3, 7)
    assert (damage.skipped, damage.skipped_bytes) == (1, ENTRY_BYTES)
    assert (damage.cut, damage.cut_bytes) == (1, ENTRY_BYTES)
    assert damage.places == (
        f"00000000000000000000.wal@{FILE_HEADER_BYTES + ENTRY_BYTES}+{ENTRY_BYTES}",
        f"00000000000000000002.wal@{FILE_HEADER_BYTES + 2 * ENTRY_BYTES}+{ENTRY_BYTES}",
    )
    assert caplog.messages == ["wal file damaged"] * 2


@pytest.mark.parametrize("left", [1, 59, FILE_HEADER_BYTES])
async def test_a_first_write_that_a_kill_cut_short_is_no_loss(files: SimFiles, left: int) -> None:
    await leave_log(files, SESSION, 1)
    path = ROOT / SESSION / f"{0:020d}.wal"
    files.overwrite(path, files.read(path)[:left])
    async with DiskWalRecovery(ROOT, files).read(SESSION) as reading:
        assert [each async for each in reading.entries()] == []
    assert reading.damage.losses == 0


async def test_a_file_with_entries_and_without_a_header_is_a_loss(files: SimFiles) -> None:
    await leave_log(files, SESSION, 1)
    path = ROOT / SESSION / f"{0:020d}.wal"
    files.overwrite(path, bytes(FILE_HEADER_BYTES) + files.read(path)[FILE_HEADER_BYTES:])
    async with DiskWalRecovery(ROOT, files).read(SESSION) as reading:
        assert [each async for each in reading.entries()] == []
    assert reading.damage.losses == 1


async def test_the_places_of_much_damage_are_bounded(files: SimFiles) -> None:
    await leave_log(files, SESSION, 400)
    for n in range(0, 400, 2):
        rot(files, FILE_HEADER_BYTES + n * ENTRY_BYTES)
    async with DiskWalRecovery(ROOT, files).read(SESSION) as reading:
        assert len([each async for each in reading.entries()]) == 200
    assert reading.damage.skipped == 200
    assert len(reading.damage.places) == 100


async def test_a_file_of_a_later_format_stops_recovery(files: SimFiles) -> None:
    await leave_log(files, SESSION, 1)
    header = FileHeader(session=SESSION, sequence=1, mark=bytes(8), version=VERSION + 1)
    files.overwrite(ROOT / SESSION / "00000000000000000001.wal", encode_file_header(header))
    with pytest.raises(Misconfigured, match="later format"):
        await read_all(files)


async def test_files_without_a_lock_are_read(files: SimFiles) -> None:
    await leave_log(files, SESSION, 2)
    files.remove(ROOT / SESSION, ["lock"])
    assert await DiskWalRecovery(ROOT, files).dead_sessions(OTHER) == [SESSION]
    assert len(await read_all(files)) == 2
