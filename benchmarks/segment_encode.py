"""How fast do bytes go to rest and come back? Segments in MB/s of raw batches, record validation in records/s.

    .venv/bin/python benchmarks/segment_encode.py [--mebibytes N] [--json]

encode     `encode_segment` of one run, in one thread; `2 threads` is two at once, which shows how much leaves the GIL
decode     `decode_block` of all its blocks
validate   `validate_records` of uncompressed batches, with the walk in C and in Python
"""

import argparse
import json
import random
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from streamhouse.format import record_scanner
from streamhouse.format.batch import HEADER_BYTES, assign_offset
from streamhouse.format.block import decode_block
from streamhouse.format.records import Record, build_batch
from streamhouse.format.run_index import decode_run_index
from streamhouse.format.segment import RunInput, encode_segment
from streamhouse.model.names import Epoch, PartitionId, TopicId

BATCH_BYTES = 16 * 1024
PARTITION = PartitionId(TopicId(uuid.UUID(int=1)), 0)
WORDS = (b'"order":', b'"customer":', b'"status":"paid",', b'"amount":', b'"currency":"EUR",', b'"warehouse":')


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    records: str
    stored_percent: float
    encode_mb_s: float
    encode_2_threads_mb_s: float
    decode_mb_s: float
    validate_c_per_s: float | None
    validate_python_per_s: float


def words(chance: random.Random, size_bytes: int) -> bytes:
    out = bytearray()
    while len(out) < size_bytes:
        out += chance.choice(WORDS) + b"%08x," % chance.getrandbits(32)
    return bytes(out[:size_bytes])


def noise(chance: random.Random, size_bytes: int) -> bytes:
    return chance.randbytes(size_bytes)


def build_run(value: Callable[[random.Random, int], bytes], record_bytes: int, mebibytes: int) -> RunInput:
    """Distinct batches up to a few MiB, then the same ones again: an LZ4 block reaches back 64 KiB only."""
    chance = random.Random(7)
    count = max(1, BATCH_BYTES // record_bytes)
    different = [
        build_batch(
            [Record(timestamp_ms=1_750_000_000_000 + n, value=value(chance, record_bytes)) for n in range(count)]
        )
        for _ in range(128)
    ]
    batches: list[bytearray] = []
    for number in range((mebibytes << 20) // len(different[0])):
        batch = bytearray(different[number % len(different)])
        assign_offset(batch, base_offset=number * count, leader_epoch=1)
        batches.append(batch)
    end = len(batches) * count
    return RunInput(partition=PARTITION, epoch=Epoch(1), base=0, end=end, batches=batches, producers=b"")


def best_seconds(work: Callable[[], object], *, times: int = 3) -> float:
    """The quickest of a few runs: the others measured the machine's other work."""
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def measure(name: str, run: RunInput) -> Figures:
    raw_mb = sum(len(batch) for batch in run.batches) / 1e6
    encoded = encode_segment([run])
    data = b"".join(encoded.body)
    row = encoded.layouts[0].run("benchmark")
    blocks = decode_run_index(data[row.index_position : row.index_position + row.index_length]).blocks
    parts = [(data[block.position : block.position + block.stored_bytes], block) for block in blocks]
    with ThreadPoolExecutor(2) as threads:
        two = best_seconds(lambda: list(threads.map(lambda _: encode_segment([run]), range(2))))
    return Figures(
        records=name,
        stored_percent=100 * len(data) / 1e6 / raw_mb,
        encode_mb_s=raw_mb / best_seconds(lambda: encode_segment([run])),
        encode_2_threads_mb_s=2 * raw_mb / two,
        decode_mb_s=raw_mb / best_seconds(lambda: [decode_block(stored, block) for stored, block in parts]),
        validate_c_per_s=walk_per_s(record_scanner.scan_in_c, run, 500) if record_scanner.IS_COMPILED else None,
        validate_python_per_s=walk_per_s(record_scanner.scan_in_python, run, 20),
    )


def walk_per_s(
    walk: Callable[[memoryview, int, bool], record_scanner.ScanResult], run: RunInput, batches: int
) -> float:
    count = run.end // len(run.batches)
    payloads = [memoryview(batch)[HEADER_BYTES:] for batch in run.batches[:batches]]
    assert walk(payloads[0], count, True).field_error is record_scanner.FieldError.NONE
    return len(payloads) * count / best_seconds(lambda: [walk(payload, count, True) for payload in payloads])


def show(figures: list[Figures]) -> None:
    print(f"{'records':<14}{'stored':>8}{'encode':>10}{'2 threads':>11}{'decode':>10}{'validate C':>14}{'Python':>12}")
    for f in figures:
        compiled = "not built" if f.validate_c_per_s is None else f"{f.validate_c_per_s / 1e6:.1f} M/s"
        print(
            f"{f.records:<14}{f.stored_percent:>7.0f}%{f.encode_mb_s:>10.0f}{f.encode_2_threads_mb_s:>11.0f}"
            f"{f.decode_mb_s:>10.0f}{compiled:>14}{f.validate_python_per_s / 1e6:>8.2f} M/s"
        )
    print("encode and decode in MB/s of raw batches")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=64, help="size of the run (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    options = parser.parse_args()
    figures = [
        measure(f"{size} B {kind}", build_run(value, size, options.mebibytes))
        for size in (100, 1000)
        for kind, value in (("words", words), ("noise", noise))
    ]
    if options.json:
        print(json.dumps([asdict(f) for f in figures]))
    else:
        show(figures)


if __name__ == "__main__":
    main()
