/* Compaction of batches, in C: `format/compaction_kernel.py` and `format/compaction_kernel.py` say what is promised and have the same
 * in Python.
 *
 * Filtering walks a payload twice: first to measure, then to write into a buffer of that size. Somebody may change the
 * payload in between, so writing trusts nothing that measuring saw.
 */
#include "_records.h"

#include <string.h>

/* Of the smallest record: its length, attributes, timestamp, offset, key, value, headers. */
#define LEAST_RECORD_BYTES 7
#define HASH_BYTES 16
#define BLOCK_BYTES 128

/* Not a flaw of records, but a reason to stop. */
enum { STOP_CHANGED = 100 };

/* --- BLAKE2b with 16 bytes of result (RFC 7693), without a key ---------------------------------------------------- */

static const uint64_t blake_start[8] = {
    UINT64_C(0x6a09e667f3bcc908), UINT64_C(0xbb67ae8584caa73b), UINT64_C(0x3c6ef372fe94f82b),
    UINT64_C(0xa54ff53a5f1d36f1), UINT64_C(0x510e527fade682d1), UINT64_C(0x9b05688c2b3e6c1f),
    UINT64_C(0x1f83d9abfb41bd6b), UINT64_C(0x5be0cd19137e2179),
};

static const uint8_t blake_order[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};

static inline uint64_t load_little(const uint8_t *at)
{
    uint64_t word = 0;
    for (int n = 7; n >= 0; n--)
        word = word << 8 | at[n];
    return word;
}

static inline uint64_t turned(uint64_t word, int bits)
{
    return word >> bits | word << (64 - bits);
}

static inline void blake_mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y)
{
    v[a] += v[b] + x;
    v[d] = turned(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = turned(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 63);
}

static void blake_block(uint64_t state[8], const uint8_t *block, uint64_t bytes_so_far, int is_last)
{
    uint64_t v[16], m[16];
    for (int n = 0; n < 16; n++)
        m[n] = load_little(block + 8 * n);
    for (int n = 0; n < 8; n++) {
        v[n] = state[n];
        v[n + 8] = blake_start[n];
    }
    v[12] ^= bytes_so_far;
    if (is_last)
        v[14] = ~v[14];
    for (int round = 0; round < 12; round++) {
        const uint8_t *s = blake_order[round];
        blake_mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
        blake_mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
        blake_mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
        blake_mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
        blake_mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
        blake_mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
        blake_mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
        blake_mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    for (int n = 0; n < 8; n++)
        state[n] ^= v[n] ^ v[n + 8];
}

static void hash_key(const uint8_t *key, int64_t length, uint8_t out[HASH_BYTES])
{
    uint64_t state[8], so_far = 0;
    uint8_t block[BLOCK_BYTES];
    memcpy(state, blake_start, sizeof(state));
    state[0] ^= UINT64_C(0x01010000) ^ HASH_BYTES;
    for (; length > BLOCK_BYTES; key += BLOCK_BYTES, length -= BLOCK_BYTES)
        blake_block(state, key, so_far += BLOCK_BYTES, 0);
    memset(block, 0, sizeof(block));
    if (length > 0)
        memcpy(block, key, (size_t)length);
    blake_block(state, block, so_far + (uint64_t)length, 1);
    for (int n = 0; n < HASH_BYTES; n++)
        out[n] = (uint8_t)(state[n >> 3] >> (8 * (n & 7)));
}

/* --- the keys of a payload ---------------------------------------------------------------------------------------- */

typedef struct {
    int64_t rows, room;
    uint8_t *hashes;
    uint8_t *offsets; /* int64 each, wherever they stand */
    uint8_t *tombstones;
} key_columns;

static enum flaw read_keys(const uint8_t *at, const uint8_t *end, int64_t count, int64_t base, key_columns *to,
                           int64_t *record)
{
    walk_result result = {0};
    record_place place;
    for (; result.index < count; result.index++) {
        int64_t offset;
        enum flaw flaw;
        *record = result.index;
        if (at == end)
            return FLAW_TOO_FEW;
        if ((flaw = walk_record(&at, end, 0, &result, &place)) != FLAW_NONE)
            return flaw;
        if (!add_long(base, place.offset_delta, &offset))
            return FLAW_RANGE;
        if (place.key_length < 0 || to->rows >= to->room)
            continue; /* there is room for as many records as fit into the payload */
        hash_key(place.key, place.key_length, to->hashes + to->rows * HASH_BYTES);
        memcpy(to->offsets + to->rows * 8, &offset, 8);
        to->tombstones[to->rows++] = place.value_length < 0;
    }
    *record = result.index;
    return at == end ? FLAW_NONE : FLAW_LEFT_OVER;
}

/* A bytearray of its first `bytes`. */
static int cut(PyObject *array, int64_t bytes)
{
    return PyByteArray_GET_SIZE(array) == bytes ? 0 : PyByteArray_Resize(array, (Py_ssize_t)bytes);
}

PyObject *records_key_hashes(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer payload;
    long long count, base;
    int64_t record = 0;
    key_columns to = {0, 0, NULL, NULL, NULL};
    PyObject *hashes = NULL, *offsets = NULL, *tombstones = NULL, *answer = NULL;
    enum flaw flaw;

    if (!PyArg_ParseTuple(args, "y*LL:key_hashes", &payload, &count, &base))
        return NULL;
    to.room = payload.len / LEAST_RECORD_BYTES;
    if (to.room > count)
        to.room = count < 0 ? 0 : count;
    hashes = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(to.room * HASH_BYTES));
    offsets = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(to.room * 8));
    tombstones = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)to.room);
    if (hashes != NULL && offsets != NULL && tombstones != NULL) {
        const uint8_t *start = payload.buf;
        to.hashes = (uint8_t *)PyByteArray_AS_STRING(hashes);
        to.offsets = (uint8_t *)PyByteArray_AS_STRING(offsets);
        to.tombstones = (uint8_t *)PyByteArray_AS_STRING(tombstones);
        if (payload.len > RELEASE_GIL_BYTES) {
            Py_BEGIN_ALLOW_THREADS
            flaw = read_keys(start, start + payload.len, count, base, &to, &record);
            Py_END_ALLOW_THREADS
        } else {
            flaw = read_keys(start, start + payload.len, count, base, &to, &record);
        }
        if (cut(hashes, to.rows * HASH_BYTES) == 0 && cut(offsets, to.rows * 8) == 0 && cut(tombstones, to.rows) == 0)
            answer = Py_BuildValue("iLOOO", (int)flaw, (long long)record, hashes, offsets, tombstones);
    }
    PyBuffer_Release(&payload);
    Py_XDECREF(hashes);
    Py_XDECREF(offsets);
    Py_XDECREF(tombstones);
    return answer;
}

/* --- what stays of a payload -------------------------------------------------------------------------------------- */

/* Offsets that stay, in order, and where the last search ended. */
typedef struct {
    const uint8_t *offsets;
    int64_t count, at;
    int64_t last;
} chosen;

static inline int64_t chosen_at(const chosen *from, int64_t n)
{
    int64_t offset;
    memcpy(&offset, from->offsets + n * 8, 8);
    return offset;
}

static void search(chosen *from, int64_t offset)
{
    int64_t low = 0, high = from->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (chosen_at(from, middle) < offset)
            low = middle + 1;
        else
            high = middle;
    }
    from->at = low;
}

static inline int is_chosen(chosen *from, int64_t offset)
{
    if (offset <= from->last)
        search(from, offset); /* records are in order, unless somebody wrote them otherwise */
    from->last = offset;
    while (from->at < from->count && chosen_at(from, from->at) < offset)
        from->at++;
    return from->at < from->count && chosen_at(from, from->at) == offset;
}

typedef struct {
    int64_t base;
    int drop_tombstones;
    int may_retime; /* whether a tombstone that stays moves all timestamps by `by_ms` */
    int64_t by_ms;
} filter_terms;

typedef struct {
    int64_t kept, tombstones, latest_delta;
    int64_t plain_bytes, retimed_bytes;
} filter_measure;

static inline int64_t retimed_length(const record_place *place, int64_t delta)
{
    return 1 + varint_bytes(delta) + (place->end - place->rest);
}

/* One record, if it stays: measured where `out` is NULL, else written behind `*out`, within `out_end`. */
static int take(const uint8_t *start, const record_place *place, const filter_terms *terms, int retime,
                filter_measure *sum, uint8_t **out, const uint8_t *out_end)
{
    /* Base and horizon may be further apart than 64 bits reach, time and horizon are not: the sum is right again. */
    int64_t delta = (int64_t)((uint64_t)place->timestamp_delta + (uint64_t)terms->by_ms);
    int64_t length = retimed_length(place, delta), plain_bytes = place->end - start;
    int64_t bytes = retime ? varint_bytes(length) + length : plain_bytes;
    if (out != NULL) {
        if (bytes > out_end - *out)
            return 0;
        if (retime) {
            *out = write_varint(*out, length);
            *(*out)++ = *place->body;
            *out = write_varint(*out, delta);
            start = place->rest;
        }
        memcpy(*out, start, (size_t)(place->end - start));
        *out += place->end - start;
    }
    if (sum->kept == 0 || place->timestamp_delta > sum->latest_delta)
        sum->latest_delta = place->timestamp_delta;
    sum->kept++;
    sum->tombstones += place->value_length < 0;
    sum->plain_bytes += plain_bytes;
    sum->retimed_bytes += varint_bytes(length) + length;
    return 1;
}

static int filter(const Py_buffer *payload, int64_t count, const filter_terms *terms, chosen *stays, int retime,
                  filter_measure *sum, int64_t *record, uint8_t *out, const uint8_t *out_end)
{
    const uint8_t *at = payload->buf, *end = at + payload->len;
    walk_result result = {0};
    record_place place;
    search(stays, terms->base);
    for (stays->last = INT64_MIN; result.index < count; result.index++) {
        const uint8_t *start = at;
        int64_t offset;
        enum flaw flaw;
        *record = result.index;
        if (at == end)
            return FLAW_TOO_FEW;
        if ((flaw = walk_record(&at, end, 0, &result, &place)) != FLAW_NONE)
            return flaw;
        if (!add_long(terms->base, place.offset_delta, &offset))
            return FLAW_RANGE;
        if (place.key_length < 0 || (terms->drop_tombstones && place.value_length < 0) || !is_chosen(stays, offset))
            continue;
        if (!take(start, &place, terms, retime, sum, out == NULL ? NULL : &out, out_end))
            return STOP_CHANGED;
    }
    *record = result.index;
    if (out != NULL && out != out_end)
        return STOP_CHANGED;
    return at == end ? FLAW_NONE : FLAW_LEFT_OVER;
}

static PyObject *filtered(const Py_buffer *payload, int64_t count, const filter_terms *terms, chosen *stays)
{
    filter_measure sum = {0, 0, 0, 0, 0}, again = {0, 0, 0, 0, 0};
    PyObject *records = Py_None;
    int64_t record = 0, bytes;
    int flaw, retime;

    Py_BEGIN_ALLOW_THREADS
    flaw = filter(payload, count, terms, stays, 0, &sum, &record, NULL, NULL);
    Py_END_ALLOW_THREADS
    retime = terms->may_retime && sum.tombstones > 0;
    Py_INCREF(records);
    if (flaw == FLAW_NONE && sum.kept > 0 && (retime || sum.kept < count)) {
        uint8_t *out;
        Py_DECREF(records);
        bytes = retime ? sum.retimed_bytes : sum.plain_bytes;
        if ((records = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)bytes)) == NULL)
            return NULL;
        out = (uint8_t *)PyByteArray_AS_STRING(records);
        Py_BEGIN_ALLOW_THREADS
        flaw = filter(payload, count, terms, stays, retime, &again, &record, out, out + bytes);
        Py_END_ALLOW_THREADS
        if (flaw != FLAW_NONE) {
            Py_DECREF(records);
            PyErr_SetString(PyExc_RuntimeError, "a payload was changed while it was read");
            return NULL;
        }
    }
    return Py_BuildValue("iLLLiN", flaw, (long long)record, (long long)sum.kept, (long long)sum.latest_delta, retime,
                         records);
}

PyObject *records_filter(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer payload, offsets;
    long long count, base, by_ms = 0;
    filter_terms terms;
    chosen stays = {NULL, 0, 0, 0};
    PyObject *retime_by, *answer = NULL;

    if (!PyArg_ParseTuple(args, "y*LLy*pO:filter", &payload, &count, &base, &offsets, &terms.drop_tombstones,
                          &retime_by))
        return NULL;
    terms.base = base;
    terms.may_retime = retime_by != Py_None;
    if (terms.may_retime)
        by_ms = PyLong_AsLongLong(retime_by);
    terms.by_ms = by_ms;
    stays.offsets = offsets.buf;
    stays.count = offsets.len / 8;
    if (offsets.len % 8 != 0)
        PyErr_SetString(PyExc_ValueError, "offsets are numbers of 64 bits");
    if (!PyErr_Occurred())
        answer = filtered(&payload, count, &terms, &stays);
    PyBuffer_Release(&payload);
    PyBuffer_Release(&offsets);
    return answer;
}
