"""Both kinds of write-ahead log keep the same promises."""

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamhouse.broker.dependencies import WalFactory
from streamhouse.broker.wal.disk_recovery import DiskWalFactory
from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.clock import Ids, SystemClock
from streamhouse.config import WalSettings
from streamhouse.stores.local_files import LocalFiles
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.folder import FolderObjectStore
from streamhouse.stores.objects.memory import MemoryObjectStore
from tests.contracts.wal import MakeWals, WalContract


class TestDiskWal(WalContract):
    @pytest.fixture(params=["always", "interval"])
    def wals(self, tmp_path: Path, request: pytest.FixtureRequest) -> MakeWals:
        fsync: str = request.param

        def make(**settings: Any) -> WalFactory:
            chosen = WalSettings(fsync=fsync, **settings)  # type: ignore[arg-type]
            return DiskWalFactory(tmp_path, chosen, files=LocalFiles(), clock=SystemClock(), ids=Ids(random.Random(1)))

        return make


def make_object_wals(store: ObjectStore, **settings: Any) -> WalFactory:
    return ObjectWalFactory(
        store, WalSettings(kind="object", **settings), clock=SystemClock(), ids=Ids(random.Random(1))
    )


class TestObjectWalInMemory(WalContract):
    @pytest.fixture
    def wals(self) -> MakeWals:
        return partial(make_object_wals, MemoryObjectStore(SystemClock()))


class TestObjectWalInAFolder(WalContract):
    @pytest.fixture
    def wals(self, tmp_path: Path) -> MakeWals:
        return partial(make_object_wals, FolderObjectStore(tmp_path, SystemClock()))
