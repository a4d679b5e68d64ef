"""How fast do records become batches, and batches become records or columns? In records/s, one thread, 100 B values.

    .venv/bin/python benchmarks/record_codec.py [--records N] [--json]

encode     `encode` of new records into the payload of a batch
decode     `decode` of a payload into stored records
ids        `scan_schema_ids` of the values of a payload
columns    all columns of many payloads, as Arrow's buffers; `value` is that column alone
murmur2    the hash of 16 B keys, in keys/s

Each in C and in Python. Compression is in none of them.
"""

import argparse
import json
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from streamhouse.format.batch import Buffer
from streamhouse.format.columnar_decoder import ALL_COLUMNS, Column, Payload, Selection, columns_in_c, columns_in_python
from streamhouse.format.partitioner import murmur2, murmur2_in_python
from streamhouse.format.record_codec import (
    IS_COMPILED,
    Origin,
    decode_in_c,
    decode_in_python,
    encode_in_c,
    encode_in_python,
    schema_ids_in_c,
    schema_ids_in_python,
)
from streamhouse.model.record import Header, NewRecord

BATCH_RECORDS = 1_000
VALUE_BYTES = 100
NOW_MS = 1_750_000_000_000
ORIGIN = Origin(0, NOW_MS, None)
HEADERS: dict[str, tuple[Header, ...]] = {"key, value": (), "and 2 headers": (("trace", bytes(16)), ("source", b"web"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    records: str
    work: str
    c_per_s: float | None
    python_per_s: float


def build_records(headers: tuple[Header, ...], count: int) -> list[NewRecord]:
    chance = random.Random(7)
    values = [b"\0\0\0\0\7" + chance.randbytes(VALUE_BYTES - 5) for _ in range(count)]
    return [NewRecord(value, b"customer-%07d" % n, headers, NOW_MS + n) for n, value in enumerate(values)]


def best_seconds(work: Callable[[], object], *, times: int = 5) -> float:
    """The quickest of a few runs: the others measured the machine's other work."""
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def measure(name: str, headers: tuple[Header, ...], total: int) -> list[Figure]:
    """C gets all batches, Python a hundredth of them."""
    batches = max(1, total // BATCH_RECORDS)
    new = [build_records(headers, BATCH_RECORDS)] * batches
    payloads: list[Payload] = [(bytes(encode_in_python(new[0], NOW_MS, 0).batch), BATCH_RECORDS, *ORIGIN)] * batches

    def figure(work: str, c: Callable[[int], object], python: Callable[[int], object]) -> Figure:
        return Figure(
            records=name,
            work=work,
            c_per_s=per_s(c, batches) if IS_COMPILED else None,
            python_per_s=per_s(python, max(1, batches // 100)),
        )

    def columns(
        read: Callable[[Sequence[Payload], Selection], object], selection: Selection
    ) -> Callable[[int], object]:
        return lambda n: read(payloads[:n], selection)

    def each(work: Callable[[Buffer], object]) -> Callable[[int], object]:
        return lambda n: dropping(work(payload) for payload, *_ in payloads[:n])

    everything, value = Selection(ALL_COLUMNS), Selection(Column.VALUE)
    return [
        figure(
            "encode",
            lambda n: dropping(encode_in_c(records, NOW_MS, 61) for records in new[:n]),
            lambda n: dropping(encode_in_python(records, NOW_MS, 61) for records in new[:n]),
        ),
        figure(
            "decode",
            each(lambda payload: decode_in_c(payload, BATCH_RECORDS, ORIGIN, 0)),
            each(lambda payload: decode_in_python(payload, BATCH_RECORDS, ORIGIN, 0)),
        ),
        figure(
            "ids",
            each(lambda payload: schema_ids_in_c(payload, BATCH_RECORDS, False)),
            each(lambda payload: schema_ids_in_python(payload, BATCH_RECORDS, False)),
        ),
        figure("columns", columns(columns_in_c, everything), columns(columns_in_python, everything)),
        figure("value", columns(columns_in_c, value), columns(columns_in_python, value)),
    ]


def dropping(results: Iterable[object]) -> None:
    """Let go of each result before the next is made, as who sends it on does."""
    deque(results, maxlen=0)


def per_s(work: Callable[[int], object], batches: int) -> float:
    return batches * BATCH_RECORDS / best_seconds(lambda: work(batches))


def measure_keys() -> Figure:
    keys = [b"customer-%07d" % n for n in range(10_000)]

    def rate(hashed: Callable[[bytes], int]) -> float:
        return len(keys) / best_seconds(lambda: [hashed(key) for key in keys])

    compiled = rate(murmur2) if IS_COMPILED else None
    return Figure(records="16 B keys", work="murmur2", c_per_s=compiled, python_per_s=rate(murmur2_in_python))


def show(figures: list[Figure]) -> None:
    print(f"{'records':<16}{'work':<10}{'C':>12}{'Python':>12}")
    for f in figures:
        compiled = "not built" if f.c_per_s is None else f"{f.c_per_s / 1e6:.1f} M/s"
        print(f"{f.records:<16}{f.work:<10}{compiled:>12}{f.python_per_s / 1e6:>8.2f} M/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000, help="records of each measure (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    options = parser.parse_args()
    figures = [figure for name, headers in HEADERS.items() for figure in measure(name, headers, options.records)]
    figures.append(measure_keys())
    if options.json:
        print(json.dumps([asdict(f) for f in figures]))
    else:
        show(figures)


if __name__ == "__main__":
    main()
