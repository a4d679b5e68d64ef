"""The C program that shows what system calls cost: it moves every byte, and says what that took."""

import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.floor import LABELS, compiled, cpu_s_per_gb


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler")
    return compiled(tmp_path_factory.mktemp("floor"))


@pytest.mark.parametrize("label", LABELS)
def test_every_call_has_its_price(program: Path, label: str) -> None:
    call, _ = LABELS[label]
    assert cpu_s_per_gb(program, call, 3_000_000, size_bytes=20_000_001) >= 0


@pytest.mark.parametrize("region", [999_999, 1_000_000, 3_500_000])
def test_what_was_received_is_in_the_file(program: Path, tmp_path: Path, region: int) -> None:
    file = tmp_path / "received"
    subprocess.run([program, "receive", "5000001", str(region), file], check=True, capture_output=True, timeout=60)
    assert file.stat().st_size == 5_000_001
    assert set(file.read_bytes()) == {1}


def test_other_words_are_refused(program: Path) -> None:
    assert subprocess.run([program, "sendfile", "1", "1"], check=False).returncode == 2
