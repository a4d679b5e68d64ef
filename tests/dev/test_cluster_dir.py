"""The folder of a local cluster: one cluster at a time, and lasting secrets that only the owner can read."""

from pathlib import Path

import pytest

from streamhouse.dev.cluster_dir import ClusterDirectory
from streamhouse.dev.processes import Reservation
from streamhouse.errors import Misconfigured


def test_a_folder_is_used_by_one_cluster_at_a_time(tmp_path: Path) -> None:
    held = ClusterDirectory(tmp_path / "cluster").take()
    with pytest.raises(Misconfigured, match="another cluster runs in"):
        ClusterDirectory(tmp_path / "cluster").take()
    held.close()
    ClusterDirectory(tmp_path / "cluster").take().close()


def test_secrets_stay_the_same_and_differ_between_folders(tmp_path: Path) -> None:
    results = []
    for name in ("one", "one", "two"):
        folder = ClusterDirectory(tmp_path / name)
        with folder.take():
            results.append(folder.secrets())
    assert results[0] == results[1] != results[2]


def test_what_holds_secrets_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = ClusterDirectory(tmp_path)
    with folder.take():
        folder.secrets()
        folder.environment_file.write_text("secret")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("secrets.json", "env")] == [0o600, 0o600]


def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Misconfigured, match="file/below can't be used"):
        ClusterDirectory(tmp_path / "file" / "below").take()


def test_a_port_is_given_once() -> None:
    with Reservation() as ports:
        taken = [ports.take() for _ in range(20)]
        assert len(set(taken)) == 20
        assert not ports.hold(taken[0])
    with Reservation() as ports:
        assert ports.hold(taken[0])
