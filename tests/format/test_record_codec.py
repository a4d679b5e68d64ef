"""New records become batches that every client reads, and batches become records again; in C and in Python alike."""

import gc
import pickle
import random
import struct
import sys
from collections.abc import Callable, Sequence

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import CorruptBatch, InvalidRecord
from streamhouse.format import record_codec
from streamhouse.format.batch import (
    HEADER_BYTES,
    assign_offset,
    check_batch,
    read_header,
    stamp_append_time,
    update_crc,
)
from streamhouse.format.compression import Codec
from streamhouse.format.record_codec import (
    MAX_SCHEMA_IDS,
    Decoded,
    Encoded,
    Origin,
    Part,
    ScannedIds,
    SchemaIds,
    decode_in_c,
    decode_in_python,
    encode_in_c,
    encode_in_python,
    find_time_in_c,
    find_time_in_python,
    schema_ids_in_c,
    schema_ids_in_python,
)
from streamhouse.format.record_scanner import FieldError
from streamhouse.format.records import Record, build_batch, decode_batch, encode_batch, schema_ids, validate_records
from streamhouse.model.record import NewRecord, StoredRecord

Encode = Callable[[Sequence[NewRecord], int, int], Encoded]
Decode = Callable[..., Decoded]

needs_c = pytest.mark.skipif(not record_codec.IS_COMPILED, reason="the C extension was not built here")
ENCODERS = [pytest.param(encode_in_python, id="python"), pytest.param(encode_in_c, id="c", marks=needs_c)]
DECODERS = [pytest.param(decode_in_python, id="python"), pytest.param(decode_in_c, id="c", marks=needs_c)]

LIMIT = 1 << 20
NOW_MS = 1_750_000_000_000
MAX_LONG = 2**63 - 1
FIELDS = st.one_of(st.none(), st.binary(max_size=200))
TIMES = st.one_of(st.none(), st.integers(0, 2**45), st.sampled_from([0, -1, 2**31, 2**62]))
RECORDS = st.lists(
    st.builds(
        NewRecord,
        value=FIELDS,
        key=FIELDS,
        headers=st.lists(st.tuples(st.text(max_size=5), FIELDS), max_size=3).map(tuple),
        timestamp_ms=TIMES,
        partition=st.one_of(st.none(), st.integers(0, 9)),
    ),
    min_size=1,
    max_size=8,
)


def stored(records: Sequence[NewRecord], base: int) -> list[StoredRecord]:
    return [
        StoredRecord(base + n, NOW_MS if r.timestamp_ms is None else r.timestamp_ms, r.key, r.value, r.headers)
        for n, r in enumerate(records)
    ]


def payload_of(records: Sequence[NewRecord]) -> bytes:
    return bytes(encode_in_python(records, NOW_MS, 0).batch)


# --- encoding


@given(RECORDS, st.sampled_from(list(Codec)))
def test_decoding_undoes_encoding(records: list[NewRecord], codec: Codec) -> None:
    batch = encode_batch(records, codec=codec, now_ms=NOW_MS, producer_id=7, producer_epoch=2, base_sequence=40)
    header = check_batch(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    validate_records(batch, header, limit_bytes=LIMIT)
    assign_offset(batch, base_offset=1000, leader_epoch=3)
    assert decode_batch(batch, limit_bytes=LIMIT) == stored(records, 1000)


@given(RECORDS, st.sampled_from(list(Codec)))
def test_aiokafka_reads_what_is_encoded(records: list[NewRecord], codec: Codec) -> None:
    theirs = DefaultRecordBatch(encode_batch(records, codec=codec, now_ms=NOW_MS))
    assert theirs.validate_crc()
    assert [StoredRecord(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == stored(records, 0)


def test_a_batch_is_byte_for_byte_what_aiokafka_builds() -> None:
    new = [NewRecord(b"v" * n, b"k", (("h", b"1"), ("n", None)), NOW_MS + n) for n in range(300)]
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for n, record in enumerate(new):
        builder.append(n, record.timestamp_ms, record.key, record.value, list(record.headers))
    theirs = bytearray(builder.build())
    assign_offset(theirs, base_offset=0, leader_epoch=-1)
    assert encode_batch(new, codec=Codec.NONE, now_ms=0) == theirs
    assert encode_batch(tuple(new), codec=Codec.NONE, now_ms=0) == theirs


def test_no_records_make_no_batch() -> None:
    with pytest.raises(InvalidRecord):
        encode_batch([], codec=Codec.NONE, now_ms=NOW_MS)


@pytest.mark.parametrize("encode", ENCODERS)
@pytest.mark.parametrize(
    ("bad", "field_error"),
    [
        (NewRecord(b"v", timestamp_ms=2**63), FieldError.RANGE),
        (NewRecord(b"v", timestamp_ms=-(2**63) - 1), FieldError.RANGE),
        (NewRecord(b"v", timestamp_ms=-(2**63)), FieldError.RANGE),
        (NewRecord(b"v", headers=(("\ud800", b""),)), FieldError.HEADER),
    ],
)
def test_what_no_batch_can_hold_is_named(encode: Encode, bad: NewRecord, field_error: FieldError) -> None:
    assert encode([NewRecord(b"first"), bad], NOW_MS, 61)[:2] == (field_error, 1)


def test_a_record_that_no_batch_can_hold_is_to_blame() -> None:
    with pytest.raises(InvalidRecord, match="record=2 ") as caught:
        encode_batch([*[NewRecord(b"")] * 2, NewRecord(b"", timestamp_ms=2**70)], codec=Codec.NONE, now_ms=NOW_MS)
    assert list(caught.value.records) == [2]


STRANGE: list[object] = [
    None,
    7,
    b"bytes",
    (),
    (b"v", b"k", ()),
    [b"v", b"k", (), 1, None],
    NewRecord("text"),  # type: ignore[arg-type]
    NewRecord(bytearray(b"v")),  # type: ignore[arg-type]
    NewRecord(b"v", "text"),  # type: ignore[arg-type]
    NewRecord(b"v", None, None),  # type: ignore[arg-type]
    NewRecord(b"v", None, [("h", b"")]),  # type: ignore[arg-type]
    NewRecord(b"v", None, (["h", b""],)),  # type: ignore[arg-type]
    NewRecord(b"v", None, (("h",),)),  # type: ignore[arg-type]
    NewRecord(b"v", None, ((b"h", b""),)),  # type: ignore[arg-type]
    NewRecord(b"v", None, (("h", "text"),)),  # type: ignore[arg-type]
    NewRecord(b"v", None, (), "now"),  # type: ignore[arg-type]
    NewRecord(b"v", None, (), 1.5),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("encode", ENCODERS)
@pytest.mark.parametrize("strange", STRANGE, ids=repr)
def test_what_is_no_record_is_a_type_error(encode: Encode, strange: NewRecord) -> None:
    with pytest.raises(TypeError):
        encode([NewRecord(b"v"), strange], NOW_MS, 61)


@pytest.mark.parametrize("encode", ENCODERS)
@pytest.mark.parametrize(
    "strange", [None, 7, b"bytes", {}, iter([NewRecord(b"v")])], ids=["none", "number", "bytes", "dict", "iterator"]
)
def test_what_is_no_list_of_records_is_a_type_error(encode: Encode, strange: Sequence[NewRecord]) -> None:
    with pytest.raises(TypeError):
        encode(strange, NOW_MS, 61)


@needs_c
@given(RECORDS, st.integers(0, 70))
def test_c_and_python_encode_alike(records: list[NewRecord], room_bytes: int) -> None:
    assert encode_in_c(records, NOW_MS, room_bytes) == encode_in_python(records, NOW_MS, room_bytes)


@needs_c
def test_c_and_python_agree_on_records_made_of_anything() -> None:
    chance = random.Random(20_240_202)
    parts: list[object] = [
        None,
        b"",
        b"value",
        bytes(130),
        "text",
        7,
        2**63,
        -(2**63),
        2**62,
        1.5,
        (),
        [],
        NewRecord(b""),
    ]
    parts += [
        (("h", b"v"),),
        (("h", None), ("\u20ac" * 50, bytes(70))),
        (("\udfff", b""),),
        (("h", 1),),
        ((),),
        (None,),
    ]
    for _ in range(20_000):
        record = [chance.choice([b"v", None]), chance.choice([b"k", None]), (), chance.choice([None, 2**40]), None]
        if chance.random() < 0.6:
            record[chance.randrange(5)] = chance.choice(parts)  # type: ignore[call-overload]
        records = [NewRecord(b"first"), NewRecord(*record), NewRecord(b"last")]  # type: ignore[arg-type]
        assert _outcome(encode_in_c, records) == _outcome(encode_in_python, records), records


def _outcome(encode: Encode, records: list[NewRecord]) -> object:
    try:
        return encode(records, NOW_MS, 5)
    except TypeError as error:
        return str(error)


# --- decoding


@pytest.mark.parametrize("decode", DECODERS)
def test_records_below_an_offset_are_left_out(decode: Decode) -> None:
    payload = payload_of([NewRecord(b"%d" % n) for n in range(10)])
    origin = Origin(100, NOW_MS, None)
    assert [r.offset for r in decode(payload, 10, origin, 104).records] == list(range(104, 110))
    assert decode(payload, 10, origin, 110) == Decoded(FieldError.NONE, 10, [], len(payload))


@pytest.mark.parametrize("decode", DECODERS)
def test_records_are_decoded_a_part_at_a_time(decode: Decode) -> None:
    payload = payload_of([NewRecord(b"%03d" % n) for n in range(10)])
    origin = Origin(0, NOW_MS, None)
    whole = decode(payload, 10, origin, 2).records
    taken: list[StoredRecord] = []
    part = Part(max_records=3)
    while True:
        field_error, index, records, position = decode(payload, 10, origin, 2, part)
        assert (field_error, len(records) <= 3) == (FieldError.NONE, True)
        taken += records
        if index == 10:
            break
        part = part._replace(position=position, record=index)
    assert taken == whole
    assert len(decode(payload, 10, origin, 2, Part(max_bytes=1)).records) == 1


@pytest.mark.parametrize("decode", DECODERS)
def test_headers_beyond_the_limit_are_no_objects(decode: Decode) -> None:
    headers = tuple(("", None) for _ in range(50))
    payload = payload_of([NewRecord(b"a"), NewRecord(b"b", headers=headers), NewRecord(b"c")])
    origin = Origin(0, NOW_MS, None)
    decoded = decode(payload, 3, origin, 0, Part(max_headers=49))
    assert (decoded.field_error, decoded.record) == (FieldError.HEADERS, 1)
    assert [record.value for record in decoded.records] == [b"a"]
    assert [record.value for record in decode(payload, 3, origin, 2, Part(max_headers=49)).records] == [b"c"]
    assert len(decode(payload, 3, origin, 0, Part(max_headers=50)).records) == 3


@pytest.mark.parametrize("scan", [schema_ids_in_python, pytest.param(schema_ids_in_c, marks=needs_c)])
def test_a_batch_of_countless_schema_ids_is_not_scanned_to_its_end(scan: Callable[..., ScannedIds]) -> None:
    values = [b"\0" + struct.pack(">i", 7 * n) for n in range(MAX_SCHEMA_IDS + 1)]
    enough, more = (payload_of([NewRecord(value) for value in values[:count]]) for count in (-1, len(values)))
    result = scan(enough, MAX_SCHEMA_IDS, False).ids
    assert (len(result.ids), result.is_cut) == (MAX_SCHEMA_IDS, False)
    field_error, record, result = scan(more, len(values), False)
    assert (field_error, record, len(result.ids), result.is_cut) == (
        FieldError.NONE,
        MAX_SCHEMA_IDS,
        MAX_SCHEMA_IDS,
        True,
    )
    assert result.ids[7 * 500] == 500


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("origin", [Origin(MAX_LONG, 0, None), Origin(0, MAX_LONG, None)])
def test_numbers_that_leave_64_bits_are_a_flaw(decode: Decode, origin: Origin) -> None:
    payload = payload_of([NewRecord(b"", timestamp_ms=0), NewRecord(b"", timestamp_ms=1)])
    assert decode(payload, 2, origin, 0)[:2] == (FieldError.RANGE, 1)


@pytest.mark.parametrize("decode", DECODERS)
def test_decoded_records_are_like_any_others(decode: Decode) -> None:
    records = decode(
        payload_of([NewRecord(b"v", b"k", (("h", b"1"),)), NewRecord(b"w")]), 2, Origin(0, 0, None), 0
    ).records
    again = [StoredRecord(0, 0, b"k", b"v", (("h", b"1"),)), StoredRecord(1, 0, None, b"w", ())]
    assert records == again
    assert [type(record) for record in records] == [StoredRecord, StoredRecord]
    assert list(map(hash, records)) == list(map(hash, again))
    assert pickle.loads(pickle.dumps(records)) == again


def test_append_time_is_the_time_of_every_record() -> None:
    batch = encode_batch([NewRecord(b"a", timestamp_ms=1), NewRecord(b"b")], codec=Codec.LZ4, now_ms=NOW_MS)
    stamp_append_time(batch, 5000)
    assert [record.timestamp_ms for record in decode_batch(batch, limit_bytes=LIMIT)] == [5000, 5000]


def test_header_names_that_are_not_utf8_can_still_be_read() -> None:
    batch = encode_batch([NewRecord(b"", headers=(("??", b"v"),))], codec=Codec.NONE, now_ms=NOW_MS)
    at = batch.index(b"??")
    batch[at : at + 2] = b"\xff\xfe"
    assert decode_batch(batch, limit_bytes=LIMIT)[0].headers == (("\ufffd\ufffd", b"v"),)


def test_control_batches_and_empty_ones_have_no_records() -> None:
    assert decode_batch(build_batch([Record(key=b"\0\0\0\1")], is_control=True), limit_bytes=LIMIT) == []
    emptied = build_batch([Record()], codec=Codec.ZSTD)
    struct.pack_into(">i", emptied, 57, 0)
    assert decode_batch(emptied, limit_bytes=LIMIT) == []


@pytest.mark.parametrize("codec", list(Codec))
def test_a_lying_count_or_a_payload_beyond_the_limit_is_refused(codec: Codec) -> None:
    batch = encode_batch([NewRecord(bytes(500))] * 3, codec=codec, now_ms=NOW_MS)
    with pytest.raises(InvalidRecord, match="too large"):
        decode_batch(batch, limit_bytes=1500)
    struct.pack_into(">i", batch, 57, 4)
    with pytest.raises(CorruptBatch, match="record=3 "):
        decode_batch(batch, limit_bytes=LIMIT)


def test_bytes_behind_the_batch_are_not_read() -> None:
    batch = encode_batch([NewRecord(b"v")], codec=Codec.NONE, now_ms=NOW_MS)
    assert decode_batch(memoryview(batch + b"what follows"), limit_bytes=LIMIT) == stored([NewRecord(b"v")], 0)


@needs_c
def test_c_and_python_agree_on_mutated_payloads() -> None:
    chance = random.Random(20_240_203)
    framed = [NewRecord(b"\0" + struct.pack(">i", n) + b"x", b"\0\0\0\0\1", (("h", b"v"),)) for n in (1, -2, 1)]
    seeds = [payload_of(framed), payload_of([NewRecord(None), NewRecord(b"\0\0\0\0\7", timestamp_ms=5)] * 2)]
    seen: set[int] = set()
    for _ in range(20_000):
        payload = _mutated(bytearray(chance.choice(seeds)), chance)
        count, base = chance.randint(0, 5), chance.choice([0, 2**40, MAX_LONG - 1])
        origin = Origin(base, chance.choice([0, NOW_MS, MAX_LONG - 2]), chance.choice([None, 5]))
        decoded = decode_in_c(payload, count, origin, base + 1)
        assert decoded == decode_in_python(payload, count, origin, base + 1), payload.hex()
        part = Part(0, 0, chance.randint(0, 4), chance.choice([1, 20, 1000]), chance.randint(0, 1))
        assert decode_in_c(payload, count, origin, base, part) == decode_in_python(payload, count, origin, base, part)
        sought = chance.choice([0, 5, NOW_MS, NOW_MS + 5])
        times = [find(payload, count, origin, base + 1, sought) for find in (find_time_in_c, find_time_in_python)]
        assert times[0] == times[1], payload.hex()
        for of_key in (True, False):
            assert schema_ids_in_c(payload, count, of_key) == schema_ids_in_python(payload, count, of_key), payload
        seen.add(decoded.field_error)
    assert seen == set(FieldError) - {FieldError.OFFSET, FieldError.HEADERS}


def _mutated(payload: bytearray, chance: random.Random) -> bytes:
    for _ in range(chance.randint(0, 3)):
        payload[chance.randrange(len(payload))] = chance.choice([0, 1, 2, 3, 127, 128, 255, chance.randrange(256)])
    if chance.random() < 0.2:
        del payload[chance.randrange(len(payload)) :]
    return bytes(payload)


@needs_c
def test_nothing_is_kept_once_records_are_gone() -> None:
    value, header = b"a value of its own", ("h", b"another one")
    records = [NewRecord(value, value, (header,)) for _ in range(50)]
    payload = bytearray(encode_in_c(records, NOW_MS, 0).batch)
    gc.collect()
    before = sys.getrefcount(value), sys.getrefcount(header), sys.getrefcount(StoredRecord), sys.getallocatedblocks()
    for _ in range(50):
        encode_in_c(records, NOW_MS, 0)
        decode_in_c(payload, 50, Origin(0, NOW_MS, None), 0)
        decode_in_c(payload[:-1], 50, Origin(0, NOW_MS, None), 0)
        schema_ids_in_c(payload, 50, True)
        _outcome(encode_in_c, [*records, NewRecord(b"", headers=((None, b""),))])  # type: ignore[arg-type]
    gc.collect()
    after = sys.getrefcount(value), sys.getrefcount(header), sys.getrefcount(StoredRecord), sys.getallocatedblocks()
    assert after[:3] == before[:3]
    assert after[3] - before[3] < 50
    payload.append(0)  # would raise if a view of it were still held


# --- schema ids


def ids_of(records: Sequence[NewRecord], part: str, codec: Codec = Codec.NONE) -> SchemaIds:
    batch = encode_batch(records, codec=codec, now_ms=NOW_MS)
    return schema_ids(batch, read_header(batch), limit_bytes=LIMIT, part="key" if part == "key" else "value")


@pytest.mark.parametrize("codec", list(Codec))
def test_ids_are_found_with_the_first_record_that_has_them(codec: Codec) -> None:
    values = [b"\0\0\0\0\5x", None, b"\0\0\1\0\0", b"\0\0\0\0\5y"]
    records = [NewRecord(value, b"\0\0\0\0\1") for value in values]
    assert ids_of(records, "value", codec) == SchemaIds({5: 0, 65536: 2}, None)
    assert ids_of(records, "key", codec) == SchemaIds({1: 0}, None)


@pytest.mark.parametrize("bare", [b"", b"\0", b"\0\0\0\1", b"\1\0\0\0\1", b"text and more"])
def test_the_first_record_without_an_id_is_named(bare: bytes) -> None:
    records = [NewRecord(b"\0\0\0\0\5"), NewRecord(None), NewRecord(bare), NewRecord(b"\0\0\0\0\6")]
    assert ids_of(records, "value") == SchemaIds({5: 0}, 2)
    assert ids_of(records, "key") == SchemaIds({}, None)


def test_malformed_records_have_no_ids() -> None:
    batch = encode_batch([NewRecord(b"\0\0\0\0\5")], codec=Codec.NONE, now_ms=NOW_MS)
    batch[HEADER_BYTES] = 99
    update_crc(batch)
    with pytest.raises(InvalidRecord, match="malformed"):
        schema_ids(batch, read_header(batch), limit_bytes=LIMIT, part="value")
