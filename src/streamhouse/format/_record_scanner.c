/* The walk over the records of a batch, in C: `format/record_scanner.py` says what it checks and has the same in Python.
 *
 * The two walks must give the same verdict for any bytes; tests/format/test_record_walk.py holds them to it. What else
 * this module offers stands in the C files beside it.
 */
#include "_records.h"

static enum flaw walk_payload(const uint8_t *at, const uint8_t *end, int64_t count, int consecutive,
                              walk_result *result)
{
    record_place place;
    for (; result->index < count; result->index++) {
        enum flaw flaw;
        if (at == end)
            return FLAW_TOO_FEW;
        if ((flaw = walk_record(&at, end, consecutive, result, &place)) != FLAW_NONE)
            return flaw;
    }
    return at == end ? FLAW_NONE : FLAW_LEFT_OVER;
}

static PyObject *walk(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer payload;
    long long count;
    int consecutive, max_headers;
    walk_result result = {0};
    enum flaw flaw;
    const uint8_t *start;

    if (!PyArg_ParseTuple(args, "y*Lpi:walk", &payload, &count, &consecutive, &max_headers))
        return NULL;
    result.max_headers = max_headers;
    start = payload.buf;
    if (payload.len > RELEASE_GIL_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        flaw = walk_payload(start, start + payload.len, count, consecutive, &result);
        Py_END_ALLOW_THREADS
    } else {
        flaw = walk_payload(start, start + payload.len, count, consecutive, &result);
    }
    PyBuffer_Release(&payload);
    return Py_BuildValue("iLLLL", (int)flaw, (long long)result.index, (long long)result.min_timestamp_delta,
                         (long long)result.max_timestamp_delta, (long long)result.null_keys);
}

static PyMethodDef methods[] = {
    {"walk", walk, METH_VARARGS,
     "walk(payload, count, consecutive, max_headers) -> (flaw, index, min_timestamp_delta, max_timestamp_delta, null_keys)"},
    {"encode", records_encode, METH_VARARGS,
     "encode(records, now_ms, room_bytes) -> (flaw, record, batch, base_timestamp_ms, max_timestamp_ms)"},
    {"decode", records_decode, METH_VARARGS,
     "decode(payload, count, base_offset, base_timestamp_ms, append_time_ms, from_offset, record_type, position, index, "
     "max_records, max_bytes, max_headers) -> (flaw, record, records, position)"},
    {"find_time", records_find_time, METH_VARARGS,
     "find_time(payload, count, base_offset, base_timestamp_ms, append_time_ms, from_offset, timestamp_ms) -> (flaw, "
     "record, is_found, offset, timestamp_ms)"},
    {"schema_ids", records_schema_ids, METH_VARARGS,
     "schema_ids(payload, count, of_key, max_ids) -> (flaw, record, {id: first record}, unframed record or -1, whether "
     "there are more ids)"},
    {"murmur2", records_murmur2, METH_O, "murmur2(key) -> hash of a key as in Java's client"},
    {"columns", records_columns, METH_VARARGS,
     "columns(payloads, wanted, from_offset, last_offset, from_ms, last_ms) -> (flaw, payload, record, rows, (null keys, "
     "null values, headers, null header values), buffers)"},
    {"encode_columns", records_encode_columns, METH_VARARGS,
     "encode_columns(rows, (key, value, timestamp, headers), partitions, count, now_ms, batch_bytes, room_bytes) -> "
     "(flaw, row, [(partition, records, base_timestamp_ms, max_timestamp_ms, batch)])"},
    {"partition_rows", records_partition_rows, METH_VARARGS,
     "partition_rows(rows, key, given, count, next) -> (row that can't have one or -1, partitions, next)"},
    {"key_hashes", records_key_hashes, METH_VARARGS,
     "key_hashes(payload, count, base_offset) -> (flaw, record, hashes, offsets, tombstones)"},
    {"filter", records_filter, METH_VARARGS,
     "filter(payload, count, base_offset, offsets, drop_tombstones, retime_by) -> (flaw, record, kept, latest timestamp "
     "delta, is retimed, records or None)"},
    {"filter_hashes", records_filter_hashes, METH_VARARGS,
     "filter_hashes(payload, count) -> hashes of the keys, or None if it isn't that many records"},
    {"join", records_join, METH_O, "join(buffers) -> bytes, copied without the GIL"},
    {"has_key", records_has_key, METH_VARARGS,
     "has_key(payload, count, key) -> whether a record has this key, or it isn't that many records"},
    {"key_filter", records_key_filter, METH_VARARGS, "key_filter(hashes, bits_per_key) -> filter"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_records", "The records of a batch, in C.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__records(void)
{
    return PyModuleDef_Init(&module);
}
