/* The walk over the records of a batch, in C: `format/record_walk.py` says what it checks and has the same in Python.
 *
 * Every read is bounded by the end of the record it belongs to, and that by the end of the payload. The two walks must
 * give the same verdict for any bytes; tests/format/test_record_walk.py holds them to it.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* As in format/record_walk.py, class Flaw. */
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
    FLAW_SIZE = 10
};

/* Payloads above this are walked without the GIL; below, letting it go costs more than the walk. */
#define RELEASE_GIL_BYTES (64 * 1024)

typedef struct {
    int64_t index;
    int64_t min_timestamp_delta;
    int64_t max_timestamp_delta;
    int64_t null_keys;
} walk_result;

/* Where the parts of a record stand; lengths are -1 for null. */
typedef struct {
    const uint8_t *body;
    const uint8_t *rest; /* behind the timestamp delta */
    const uint8_t *key;
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

/* Reads a zigzag number of at most 64 bits; 0 when the bytes end inside it or it is too long. */
static inline int read_varlong(const uint8_t **at, const uint8_t *end, int64_t *out)
{
    const uint8_t *p = *at;
    uint64_t value = 0;
    unsigned shift = 0;
    for (;;) {
        uint8_t byte;
        if (p >= end || shift > 63)
            return 0;
        byte = *p++;
        /* The tenth byte has room for one bit. */
        if (shift == 63 && byte > 1 && byte < 0x80)
            return 0;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            break;
        shift += 7;
    }
    *out = (int64_t)((value >> 1) ^ (UINT64_C(0) - (value & 1)));
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

static inline enum flaw walk_headers(const uint8_t **at, const uint8_t *end)
{
    int32_t count, length;
    enum flaw flaw;
    if (!read_varint(at, end, &count))
        return FLAW_NUMBER;
    if (count < 0 || count > end - *at)
        return FLAW_HEADER_COUNT;
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
    if ((flaw = walk_headers(at, end)) != FLAW_NONE)
        return flaw;
    if (*at != end)
        return FLAW_SIZE;
    if (result->index == 0 || place->timestamp_delta < result->min_timestamp_delta)
        result->min_timestamp_delta = place->timestamp_delta;
    if (result->index == 0 || place->timestamp_delta > result->max_timestamp_delta)
        result->max_timestamp_delta = place->timestamp_delta;
    return FLAW_NONE;
}

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
    int consecutive;
    walk_result result = {0, 0, 0, 0};
    enum flaw flaw;
    const uint8_t *start;

    if (!PyArg_ParseTuple(args, "y*Lp:walk", &payload, &count, &consecutive))
        return NULL;
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

/* Appends where a record stands, in positions of the payload; -1 with an exception set when memory is short. */
static int append_place(PyObject *places, const uint8_t *start, const uint8_t *record, const record_place *place)
{
    int failed;
    PyObject *item = Py_BuildValue("nnnnLinii", (Py_ssize_t)(record - start), (Py_ssize_t)(place->body - start),
                                   (Py_ssize_t)(place->rest - start), (Py_ssize_t)(place->end - start),
                                   (long long)place->timestamp_delta, (int)place->offset_delta,
                                   (Py_ssize_t)(place->key - start), (int)place->key_length,
                                   (int)place->value_length);
    if (item == NULL)
        return -1;
    failed = PyList_Append(places, item);
    Py_DECREF(item);
    return failed;
}

static PyObject *locate(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer payload;
    long long count;
    walk_result result = {0, 0, 0, 0};
    record_place place;
    enum flaw flaw = FLAW_NONE;
    const uint8_t *start, *at, *end;
    PyObject *places;

    if (!PyArg_ParseTuple(args, "y*L:locate", &payload, &count))
        return NULL;
    if ((places = PyList_New(0)) == NULL) {
        PyBuffer_Release(&payload);
        return NULL;
    }
    start = at = payload.buf;
    end = start + payload.len;
    for (; flaw == FLAW_NONE && result.index < count; result.index++) {
        const uint8_t *record = at;
        if (at == end)
            flaw = FLAW_TOO_FEW;
        else
            flaw = walk_record(&at, end, 0, &result, &place);
        if (flaw == FLAW_NONE && append_place(places, start, record, &place) < 0) {
            PyBuffer_Release(&payload);
            Py_DECREF(places);
            return NULL;
        }
    }
    if (flaw == FLAW_NONE && at != end)
        flaw = FLAW_LEFT_OVER;
    PyBuffer_Release(&payload);
    return Py_BuildValue("iN", (int)flaw, places);
}

static PyMethodDef methods[] = {
    {"walk", walk, METH_VARARGS,
     "walk(payload, count, consecutive) -> (flaw, index, min_timestamp_delta, max_timestamp_delta, null_keys)"},
    {"locate", locate, METH_VARARGS,
     "locate(payload, count) -> (flaw, [(start, body, rest, end, timestamp_delta, offset_delta, key, key_length, "
     "value_length)])"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_records", "The walk over the records of a batch.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__records(void)
{
    return PyModuleDef_Init(&module);
}
