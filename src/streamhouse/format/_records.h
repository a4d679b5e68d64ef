/* A record inside a payload, for everything in C that reads some: flaws, numbers, hashes, and the walk over one record.
 *
 * Every read is bounded by the end of the record it belongs to, and that by the end of the payload.
 */
#ifndef STREAMHOUSE_RECORDS_H
#define STREAMHOUSE_RECORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "_varint.h"

/* As in format/record_scanner.py, class Flaw. */
enum flaw {
    FLAW_NONE = 0,
    FLAW_TOO_FEW = 1,
    FLAW_LEFT_OVER = 2,
    FLAW_NUMBER = 3,
    FLAW_LENGTH = 4,
    FLAW_OFFSET = 5,
    FLAW_KEY = 6,
    FLAW_VALUE = 7,
    FLAW_HEADER_COUNT = 8,
    FLAW_HEADER = 9,
    FLAW_SIZE = 10,
    FLAW_RANGE = 11,
    FLAW_HEADERS = 12
};

/* Payloads above this are walked without the GIL; below, letting it go costs more than the walk. */
#define RELEASE_GIL_BYTES (64 * 1024)

typedef struct {
    int64_t index;
    int64_t min_timestamp_delta;
    int64_t max_timestamp_delta;
    int64_t null_keys;
    int32_t max_headers; /* of one record; 0: as many as it has room for */
} walk_result;

/* Where the parts of a record stand; lengths are -1 for null. */
typedef struct {
    const uint8_t *body;
    const uint8_t *rest; /* behind the timestamp delta */
    const uint8_t *key;
    const uint8_t *value;
    const uint8_t *headers; /* their count */
    const uint8_t *end;
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_length;
    int32_t value_length;
} record_place;

/* Reads a zigzag number of at most 32 bits; 0 when the bytes end inside it or it is too long. */
static inline int read_varint(const uint8_t **at, const uint8_t *end, int32_t *out)
{
    const uint8_t *p = *at;
    uint64_t value = 0;
    if (p < end && *p < 0x80) {
        value = *p++;
    } else {
        unsigned shift = 0;
        for (;;) {
            uint8_t byte;
            if (p >= end || shift > 28)
                return 0;
            byte = *p++;
            value |= (uint64_t)(byte & 0x7f) << shift;
            if (byte < 0x80)
                break;
            shift += 7;
        }
        if (value > UINT32_MAX)
            return 0;
    }
    *out = (int32_t)((uint32_t)(value >> 1) ^ (0u - (uint32_t)(value & 1)));
    *at = p;
    return 1;
}

/* Skips a field of declared length; `least` is -1 where null is allowed, else 0. */
static inline enum flaw skip_field(const uint8_t **at, const uint8_t *end, int32_t least, enum flaw flaw,
                                   int32_t *length)
{
    if (!read_varint(at, end, length))
        return FLAW_NUMBER;
    if (*length < least || *length > end - *at)
        return flaw;
    if (*length > 0)
        *at += *length;
    return FLAW_NONE;
}

static inline enum flaw walk_headers(const uint8_t **at, const uint8_t *end, int32_t most)
{
    int32_t count, length;
    enum flaw flaw;
    if (!read_varint(at, end, &count))
        return FLAW_NUMBER;
    if (count < 0 || count > end - *at)
        return FLAW_HEADER_COUNT;
    if (most > 0 && count > most)
        return FLAW_HEADERS;
    while (count-- > 0) {
        if ((flaw = skip_field(at, end, 0, FLAW_HEADER, &length)) != FLAW_NONE)
            return flaw;
        if ((flaw = skip_field(at, end, -1, FLAW_HEADER, &length)) != FLAW_NONE)
            return flaw;
    }
    return FLAW_NONE;
}

static inline enum flaw walk_record(const uint8_t **at, const uint8_t *payload_end, int consecutive,
                                    walk_result *result, record_place *place)
{
    int32_t length;
    const uint8_t *end;
    enum flaw flaw;

    if (!read_varint(at, payload_end, &length))
        return FLAW_NUMBER;
    if (length < 1 || length > payload_end - *at)
        return FLAW_LENGTH;
    place->body = *at;
    place->end = end = *at + length;
    *at += 1; /* attributes: no bit of them means anything yet */
    if (!read_varlong(at, end, &place->timestamp_delta))
        return FLAW_NUMBER;
    place->rest = *at;
    if (!read_varint(at, end, &place->offset_delta))
        return FLAW_NUMBER;
    if (consecutive && place->offset_delta != result->index)
        return FLAW_OFFSET;
    if ((flaw = skip_field(at, end, -1, FLAW_KEY, &place->key_length)) != FLAW_NONE)
        return flaw;
    place->key = *at - (place->key_length > 0 ? place->key_length : 0);
    result->null_keys += place->key_length < 0;
    if ((flaw = skip_field(at, end, -1, FLAW_VALUE, &place->value_length)) != FLAW_NONE)
        return flaw;
    place->value = *at - (place->value_length > 0 ? place->value_length : 0);
    place->headers = *at;
    if ((flaw = walk_headers(at, end, result->max_headers)) != FLAW_NONE)
        return flaw;
    if (*at != end)
        return FLAW_SIZE;
    if (result->index == 0 || place->timestamp_delta < result->min_timestamp_delta)
        result->min_timestamp_delta = place->timestamp_delta;
    if (result->index == 0 || place->timestamp_delta > result->max_timestamp_delta)
        result->max_timestamp_delta = place->timestamp_delta;
    return FLAW_NONE;
}

/* Adds two numbers; 0 when the sum leaves 64 bits. */
static inline int add_long(int64_t a, int64_t b, int64_t *sum)
{
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b)
        return 0;
    *sum = a + b;
    return 1;
}

static inline uint64_t zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0);
}

static inline int varint_bytes(int64_t value)
{
    uint64_t rest = zigzag(value);
    int count = 1;
    for (; rest >= 0x80; rest >>= 7)
        count++;
    return count;
}

static inline uint8_t *write_varint(uint8_t *at, int64_t value)
{
    uint64_t rest = zigzag(value);
    for (; rest >= 0x80; rest >>= 7)
        *at++ = (uint8_t)(rest | 0x80);
    *at++ = (uint8_t)rest;
    return at;
}

/* The hash of a key as in Java's client. */
static inline uint32_t murmur2(const uint8_t *key, size_t length)
{
    const uint32_t multiplier = UINT32_C(0x5bd1e995);
    uint32_t hash = UINT32_C(0x9747b28c) ^ (uint32_t)length;
    for (; length >= 4; key += 4, length -= 4) {
        uint32_t word = (uint32_t)key[0] | (uint32_t)key[1] << 8 | (uint32_t)key[2] << 16 | (uint32_t)key[3] << 24;
        word *= multiplier;
        word = (word ^ word >> 24) * multiplier;
        hash = (hash * multiplier) ^ word;
    }
    if (length > 0) {
        while (length-- > 0)
            hash ^= (uint32_t)key[length] << (8 * length);
        hash *= multiplier;
    }
    hash = (hash ^ hash >> 13) * multiplier;
    return hash ^ hash >> 15;
}

/* _record_codec.c */
PyObject *records_encode(PyObject *module, PyObject *args);
PyObject *records_decode(PyObject *module, PyObject *args);
PyObject *records_find_time(PyObject *module, PyObject *args);
PyObject *records_schema_ids(PyObject *module, PyObject *args);
PyObject *records_murmur2(PyObject *module, PyObject *key);

/* _columnar_decoder.c */
PyObject *records_columns(PyObject *module, PyObject *args);

/* _columnar_encoder.c */
PyObject *records_encode_columns(PyObject *module, PyObject *args);
PyObject *records_partition_rows(PyObject *module, PyObject *args);

/* _compaction_kernel.c */
PyObject *records_key_hashes(PyObject *module, PyObject *args);
PyObject *records_filter(PyObject *module, PyObject *args);

/* _key_filter.c */
PyObject *records_filter_hashes(PyObject *module, PyObject *args);
PyObject *records_join(PyObject *module, PyObject *arg);
PyObject *records_key_filter(PyObject *module, PyObject *args);
PyObject *records_has_key(PyObject *module, PyObject *args);

#endif
