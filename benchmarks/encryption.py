"""What does encryption at rest cost? MB/s of CPU time in one thread, beside the LZ4 and CRC of the same segments.

    .venv/bin/python -m benchmarks.encryption [--mebibytes N] [--repeat N] [--json]

Segments of one run are encoded, and encrypted as objects; then the objects are decrypted, whole and by block. `append`
are batches as they are written to the log on disk, with and without encryption. Plain and encrypted take turns in one
process; medians of CPU time, so that a busy machine disturbs little. `ratio` is the time with encryption over without.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

from benchmarks.segment_encode import PARTITION, build_run, noise, words
from streamhouse.format.block import decode_block
from streamhouse.format.encryption import EntryCipher, ObjectCipher, make_data_key, new_cipher
from streamhouse.format.run_index import decode_run_index
from streamhouse.format.segment import RunInput, encode_segment
from streamhouse.format.wal_file import WalEntry, encode_entry

KEY = "segments/s-1/1"
DATA_KEY = make_data_key(bytes(32), key_id="k1", wrapped=bytes(60))
MARK = bytes(8)


def cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def median_s(repeat: int, *works: Callable[[], object]) -> list[float]:
    """The median CPU time of each, taken in turns after a round that doesn't count."""
    rounds = [[cpu_s(work) for work in works] for _ in range(repeat + 1)][1:]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


def measure(name: str, run: RunInput, repeat: int) -> dict[str, object]:
    raw_bytes = sum(len(batch) for batch in run.batches)
    encoded = encode_segment([run])
    cipher = new_cipher(DATA_KEY, object_key=KEY, size_bytes=encoded.size_bytes)
    stored = cipher.encrypt(encoded.body)
    plain = b"".join(encoded.body)
    layout = encoded.layouts[0].entry
    index = decode_run_index(plain[layout.index_position :][: layout.index_length], key=KEY)
    entries = [WalEntry(PARTITION, run.epoch, 0, 1, batch) for batch in run.batches]

    def encrypt() -> object:
        return new_cipher(DATA_KEY, object_key=KEY, size_bytes=encoded.size_bytes).encrypt(encoded.body)

    def decode() -> None:
        for block in index.blocks:
            decode_block(plain[block.position : block.position + block.stored_bytes], block, key=KEY)

    def decrypt_blocks() -> None:
        for block in index.blocks:
            chunks = cipher.header.chunks_of(block.position, block.position + block.stored_bytes)
            first, end = cipher.header.stored_range(chunks)
            view, _ = cipher.decrypt(stored[first:end], chunks)
            start = block.position - chunks.start * cipher.header.chunk_bytes
            bytes(view[start : start + block.stored_bytes])

    def append(entry_cipher: EntryCipher | None) -> None:
        position = 0
        for entry in entries:
            head, batch = encode_entry(entry, mark=MARK, position=position, cipher=entry_cipher)
            position += len(head) + len(batch)

    opened = ObjectCipher(cipher.header, DATA_KEY.key, object_key=KEY)
    whole = cipher.header.chunks_of(0, encoded.size_bytes)
    sealed = stored[1024:-1024]
    encode_s, encrypt_s = median_s(repeat, lambda: encode_segment([run]), encrypt)
    decode_s, blocks_s, decrypt_s = median_s(repeat, decode, decrypt_blocks, lambda: opened.decrypt(sealed, whole))
    with_log = EntryCipher(DATA_KEY.key, os.urandom(32), session="s-1", sequence=0)
    plain_s, encrypted_s = median_s(repeat, lambda: append(None), lambda: append(with_log))
    mb, stored_mb = raw_bytes / 1e6, encoded.size_bytes / 1e6
    return {
        "records": name,
        "stored_percent": round(100 * stored_mb / mb, 1),
        "encrypt_mb_s": round(stored_mb / encrypt_s),
        "decrypt_mb_s": round(stored_mb / decrypt_s),
        "encode_mb_s": round(mb / encode_s),
        "encode_and_encrypt_mb_s": round(mb / (encode_s + encrypt_s)),
        "write_ratio": round((encode_s + encrypt_s) / encode_s, 2),
        "read_ratio": round((decode_s + blocks_s) / decode_s, 2),
        "append_mb_s": round(mb / plain_s),
        "append_encrypted_mb_s": round(mb / encrypted_s),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = [
        measure("words of 1 KB", build_run(words, 1000, options.mebibytes), options.repeat),
        measure("noise of 1 KB", build_run(noise, 1000, options.mebibytes), options.repeat),
    ]
    if options.json:
        print(json.dumps(results, indent=1))
        return
    for result in results:
        print("  ".join(f"{name}={value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
