"""Decoders: everything that reads bytes which a client sent or a store kept, as functions that a fuzzer can call.

Owns        for each decoder: how it is called, what it may raise, and some bytes that it reads well
Leaves      choosing bytes to `guided` (by coverage) and to `test_decoders` (the corpus, and simple mutations of it)

A checksum keeps a fuzzer out of what lies behind it. So a decoder with one is called twice: with the bytes as they are,
and with a checksum that agrees with everything.
"""

import json
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Final

import msgspec

from streamhouse.errors import (
    CorruptObject,
    InvalidRecord,
    InvalidSchema,
    Misconfigured,
    Rejected,
)
from streamhouse.format import batch, block, encryption, producer_snapshot, run_index, segment, wal_file, wal_object
from streamhouse.format.compression import Codec
from streamhouse.format.consumer_protocol import assigned_partitions, subscribed_topics
from streamhouse.format.records import Record, build_batch, encode_batch, read_records, validate_records
from streamhouse.format.segment import RunInput, encode_segment
from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId
from streamhouse.model.record import NewRecord
from streamhouse.schemas import LANGUAGES, parse_schema
from streamhouse.sql.parser import parse_all
from streamhouse.wire.http.errors import Unprocessable
from streamhouse.wire.http.records.publish_body import defaults_of, new_records
from streamhouse.wire.http.records.types import Publication, PublicationQuery
from streamhouse.wire.kafka import handlers
from streamhouse.wire.kafka.codec import MalformedMessage
from streamhouse.wire.kafka.context import CloseConnection
from streamhouse.wire.kafka.framing import decode_request
from streamhouse.wire.kafka.otlp_metrics import read_points
from tests.fuzz.frames import corpus as frames
from tests.wire.kafka.otlp import pushed_metrics

LIMIT_BYTES: Final = 1 << 20
MAX_BYTES: Final = 4_096
SESSION: Final = SessionId("s-00000000000000000000000000000001")
PARTITION: Final = PartitionId(TopicId(uuid.UUID(int=1)), 0)
KEY: Final = "segments/s-1/1"
DATA_KEY: Final = encryption.make_data_key(bytes(encryption.KEY_BYTES), key_id="k1", wrapped=b"wrapped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    read: Callable[[bytes], object]
    refuses: tuple[type[Exception], ...]
    """What it may raise for bytes that are wrong; anything else is a defect."""
    examples: Callable[[], list[bytes]]
    checked: tuple[ModuleType, ...] = ()
    """Modules whose checksums keep a fuzzer out."""

    def __call__(self, data: bytes) -> None:
        self._once(data)
        if self.checked:
            with agreeing(self.checked):
                self._once(data)

    def _once(self, data: bytes) -> None:
        try:
            self.read(data)
        except self.refuses:
            return


class _Agreeing(int):
    """A checksum that equals every other."""

    def __call__(self, *_: object, **__: object) -> "_Agreeing":
        return self

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


@contextmanager
def agreeing(modules: tuple[ModuleType, ...]) -> Iterator[None]:
    plain = [module.crc32c for module in modules]
    for module in modules:
        module.crc32c = _Agreeing()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module, function in zip(modules, plain, strict=True):
            module.crc32c = function  # type: ignore[attr-defined]


# --- from clients ---------------------------------------------------------------------------------------------------


def read_frame(data: bytes) -> object:
    return decode_request(bytearray(data), max_elements=10_000)


def read_batch(data: bytes) -> None:
    header = batch.check_batch(data)
    validate_records(data, header, limit_bytes=LIMIT_BYTES)
    read_records(data, limit_bytes=LIMIT_BYTES)


def read_body(data: bytes) -> object:
    body = msgspec.json.decode(data, type=Publication)
    return new_records(body.records, defaults_of(PublicationQuery(), body))


def read_schema(data: bytes) -> object:
    kind, _, text = data.decode().partition("\n")
    return parse_schema(kind, text, {})


def read_group(data: bytes) -> object:
    return subscribed_topics(data), assigned_partitions(data)


def batches() -> list[bytes]:
    records = [Record(timestamp_ms=1000 + number, key=None, value=b"v" * number) for number in range(4)]
    with_headers = [
        NewRecord(b"value", b"key", (("name", b"1"), ("name", None)), 5, 0),
        NewRecord(None, b"k", (), 6, 0),
    ]
    return [
        *(bytes(build_batch(records, codec=codec)) for codec in range(5)),
        bytes(build_batch(records, producer_id=7, producer_epoch=1, base_sequence=3, is_transactional=True)),
        bytes(encode_batch(with_headers, codec=Codec.NONE, now_ms=1)),
    ]


def bodies() -> list[bytes]:
    return [
        b'{"records":[{"value":{"a":1}},{"key":"k","value":null,"headers":[{"name":"h","value":"x"}]}]}',
        b'{"records":[{"value":"AAEC","value_format":"base64","partition":1,"timestamp_ms":5}],"acks":"wal"}',
    ]


def schemas() -> list[bytes]:
    avro = {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "long"], "default": None}]}
    document = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}, "required": ["a"]}
    proto = 'syntax = "proto3"; message M { repeated int32 a = 1 [packed = true]; oneof o { string b = 2; } }'
    texts = {"AVRO": json.dumps(avro), "JSON": json.dumps(document), "PROTOBUF": proto}
    return [f"{kind}\n{texts[kind]}".encode() for kind in LANGUAGES]


def statements() -> list[bytes]:
    return [
        b"CREATE PIPELINE p WITH (key = 'c') AS INSERT INTO t SELECT a, b FROM STREAM(s) WHERE a > 1;",
        b"CREATE TABLE t (id BIGINT, at TIMESTAMP) WITH (connector = 'topic', format = 'json'); DROP PIPELINE p;",
        b"CREATE MATERIALIZED VIEW v AS SELECT c, sum(a) AS x FROM STREAM(s) GROUP BY c; -- the end",
    ]


# --- from stores ----------------------------------------------------------------------------------------------------


def read_segment(data: bytes) -> None:
    segment.check_header(data, key=KEY)
    directory = segment.read_directory(data, size_bytes=len(data), key=KEY)
    if not isinstance(directory, segment.Directory):
        return
    for run in directory.runs:
        index = data[run.index_position : run.index_position + run.index_length]
        for entry in run_index.decode_run_index(index, key=KEY).blocks:
            block.decode_block(data[entry.position : entry.position + entry.stored_bytes], entry, key=KEY)


def read_index(data: bytes) -> None:
    for read in (
        lambda: run_index.decode_run_index(data, key=KEY),
        lambda: run_index.salvage_producers(data, key=KEY),
        lambda: run_index.salvage_blocks(data, position=0, length=1 << 20, key=KEY),
    ):
        try:
            read()
        except CorruptObject:
            continue


def read_encrypted(data: bytes) -> None:
    header = encryption.decode_header(data, key=KEY)
    if header is None:
        return
    cipher = encryption.ObjectCipher(header, DATA_KEY.key, object_key=KEY)
    chunks = header.chunks_of(0, MAX_BYTES)
    first, end = header.stored_range(chunks)
    plain, damaged = cipher.decrypt(data[first:end], chunks)
    assert damaged <= len(chunks)
    assert len(plain) <= header.size_bytes


def read_wal_file(data: bytes) -> None:
    header = wal_file.decode_file_header(memoryview(data))
    for _ in wal_file.scan(memoryview(data)):
        pass
    wal_file.summarize(data)
    if header is not None and header.envelope is not None:
        cipher = encryption.EntryCipher(DATA_KEY.key, header.salt, session=header.session, sequence=header.sequence)
        for _ in wal_file.scan(memoryview(data), header, cipher):
            pass


def read_wal_object(data: bytes) -> None:
    wal_object.read_object(memoryview(data), session=SESSION, sequence=1)
    wal_object.decode_seal(memoryview(data), session=SESSION, sequence=1)


def runs() -> list[RunInput]:
    stored = bytearray(batches()[0])
    batch.assign_offset(stored, base_offset=0, leader_epoch=1)
    snapshot = producer_snapshot.encode_producers([])
    return [RunInput(partition=PARTITION, epoch=Epoch(1), base=0, end=4, batches=[stored], producers=snapshot)]


def segments() -> list[bytes]:
    return [b"".join(encode_segment(runs(), block_bytes=100).body)]


def indexes() -> list[bytes]:
    whole, layout = segments()[0], encode_segment(runs(), block_bytes=100).layouts[0].entry
    return [whole[layout.index_position : layout.index_position + layout.index_length]]


def wal_files() -> list[bytes]:
    mark = b"m" * wal_file.MARK_BYTES
    head = wal_file.encode_file_header(wal_file.FileHeader(session=SESSION, sequence=1, mark=mark))
    stored = bytearray(batches()[0])
    batch.assign_offset(stored, base_offset=0, leader_epoch=1)
    entry = wal_file.WalEntry(PARTITION, Epoch(1), 0, 4, stored)
    plain = head + b"".join(map(bytes, wal_file.encode_entry(entry, mark=mark, position=len(head))))
    salt = bytes(encryption.SALT_BYTES)
    with_key = wal_file.FileHeader(
        session=SESSION, sequence=1, mark=mark, version=wal_file.VERSION, salt=salt, envelope=DATA_KEY.envelope
    )
    cipher = encryption.EntryCipher(DATA_KEY.key, salt, session=SESSION, sequence=1)
    encrypted = wal_file.encode_entry(entry, mark=mark, position=len(head), cipher=cipher)
    return [plain, wal_file.encode_file_header(with_key) + b"".join(map(bytes, encrypted))]


def encrypted_objects() -> list[bytes]:
    body = b"records" * 100
    cipher = encryption.new_cipher(DATA_KEY, object_key=KEY, size_bytes=len(body))
    return [bytes(cipher.encrypt([body]))]


def wal_objects() -> list[bytes]:
    entry = wal_files()[0][wal_file.FILE_HEADER_BYTES :]
    head = wal_object.ObjectHeader(
        session=SESSION,
        sequence=1,
        mark=b"m" * wal_file.MARK_BYTES,
        entries=1,
        size_bytes=len(entry) + 2 * wal_object.COPY_BYTES,
        durable_below=1,
    )
    seal = wal_object.encode_seal(wal_object.Seal(session=SESSION, sequence=1, by="s-2", at_ms=5))
    return [seal, wal_object.encode_header(head) + entry + wal_object.encode_header(head)]


def snapshots() -> list[bytes]:
    return [producer_snapshot.encode_producers([])]


DECODERS: Final[Mapping[str, Decoder]] = {
    "frames": Decoder(read=read_frame, refuses=(MalformedMessage, CloseConnection), examples=lambda: frames()[::9]),
    "batches": Decoder(
        read=read_batch,
        refuses=(Rejected,),
        examples=batches,
        checked=(batch,),
    ),
    "groups": Decoder(read=read_group, refuses=(), examples=lambda: [struct.pack(">hih1si", 0, 1, 1, b"t", 0)]),
    "metrics": Decoder(read=read_points, refuses=(InvalidRecord,), examples=lambda: [pushed_metrics()]),
    "bodies": Decoder(read=read_body, refuses=(ValueError, Unprocessable), examples=bodies),
    "schemas": Decoder(read=read_schema, refuses=(InvalidSchema, UnicodeDecodeError), examples=schemas),
    "sql": Decoder(read=lambda data: parse_all(data.decode()), refuses=(UnicodeDecodeError,), examples=statements),
    "segments": Decoder(
        read=read_segment, refuses=(CorruptObject,), examples=segments, checked=(segment, run_index, block)
    ),
    "indexes": Decoder(read=read_index, refuses=(), examples=indexes, checked=(run_index, producer_snapshot)),
    "snapshots": Decoder(
        read=lambda data: producer_snapshot.decode_producers(data, key=KEY),
        refuses=(CorruptObject,),
        examples=snapshots,
        checked=(producer_snapshot,),
    ),
    "encrypted": Decoder(
        read=read_encrypted, refuses=(Misconfigured,), examples=encrypted_objects, checked=(encryption,)
    ),
    "wal-files": Decoder(read=read_wal_file, refuses=(Misconfigured,), examples=wal_files, checked=(wal_file,)),
    "wal-objects": Decoder(
        read=read_wal_object,
        refuses=(Misconfigured,),
        examples=wal_objects,
        checked=(wal_object, wal_file),
    ),
}

for _language in LANGUAGES.values():
    import_module(f"streamhouse.schemas.{_language}")  # not at the first text: what a fuzzer imports it instruments
assert handlers.__name__, "handlers register the messages that frames are decoded to when they are imported"
