/* Records to Arrow's columns, in C: `format/columnar_decoder.py` says what is promised and has the same in Python.
 *
 * Payloads are walked twice without the GIL: first to measure, so that every buffer is made at its final size, then to
 * fill. Somebody may change a payload in between, so filling trusts nothing that measuring saw: it stays inside its
 * buffers and gives up where they don't fit.
 */
#include "_records.h"

/* As in format/columnar_decoder.py, class Column. */
enum { WANT_OFFSET = 1, WANT_TIMESTAMP = 2, WANT_TYPE = 4, WANT_KEY = 8, WANT_VALUE = 16, WANT_HEADERS = 32 };

enum { CREATE_TIME = 0, LOG_APPEND_TIME = 1 };

/* The buffers that are handed over, in this order; those of binary columns are three in a row. */
enum slot {
    SLOT_OFFSET,
    SLOT_TIMESTAMP,
    SLOT_TYPE,
    SLOT_KEY,
    SLOT_VALUE = SLOT_KEY + 3,
    SLOT_HEADER_OFFSETS = SLOT_VALUE + 3,
    SLOT_HEADER_NAME,
    SLOT_HEADER_VALUE = SLOT_HEADER_NAME + 3,
    SLOTS = SLOT_HEADER_VALUE + 3
};

/* Not flaws of records, but reasons to stop. */
enum { STOP_CHANGED = 100 };

typedef struct {
    Py_buffer payload;
    int64_t count;
    int64_t base_offset;
    int64_t base_ms;
    int64_t append_ms;
    int has_append_ms;
} source;

/* Arrow's layout for bytes: where each row ends, all bytes, one bit per row that is not null. */
typedef struct {
    int64_t rows, bytes, nulls; /* as measured */
    int64_t at_row, at_byte;    /* as filled */
    uint8_t *validity;
    int32_t *offsets;
    uint8_t *data;
} binary_column;

typedef struct {
    int wanted;
    int64_t from_offset, last_offset; /* both are wanted */
    int64_t from_ms, last_ms;
    int64_t rows, at_row;
    int64_t *offset;
    int64_t *timestamp;
    int32_t *type;
    int32_t *header_offsets;
    binary_column key, value, header_name, header_value;
} table;

/* Where reading stopped. */
typedef struct {
    Py_ssize_t batch;
    int64_t record;
} position;

/* --- header names: text, whatever a client sent ------------------------------------------------------------------ */

/* How many bytes of a character stand here, and in `whole` whether all of it does. */
static int character(const uint8_t *at, const uint8_t *end, int *whole)
{
    uint8_t lead = *at, low = 0x80, high = 0xbf;
    int more, seen = 1;
    *whole = 0;
    if (lead < 0x80)
        more = 0;
    else if (lead >= 0xc2 && lead <= 0xdf)
        more = 1;
    else if (lead >= 0xe0 && lead <= 0xef)
        more = 2;
    else if (lead >= 0xf0 && lead <= 0xf4)
        more = 3;
    else
        return 1;
    /* Longer than need be, halves of surrogate pairs, and beyond Unicode. */
    if (lead == 0xe0)
        low = 0xa0;
    else if (lead == 0xed)
        high = 0x9f;
    else if (lead == 0xf0)
        low = 0x90;
    else if (lead == 0xf4)
        high = 0x8f;
    for (; more > 0; more--, seen++, low = 0x80, high = 0xbf)
        if (at + seen >= end || at[seen] < low || at[seen] > high)
            return seen;
    *whole = 1;
    return seen;
}

static inline int is_ascii(const uint8_t *at, int32_t length)
{
    uint8_t bits = 0;
    for (int32_t n = 0; n < length; n++)
        bits |= at[n];
    return bits < 0x80;
}

/* The size of a name once every broken character is U+FFFD, as Python's "replace" does it; `out` NULL: only measure. */
static int64_t clean_name(const uint8_t *at, int32_t length, uint8_t *out, int64_t room)
{
    const uint8_t *end = at + length;
    int64_t size = 0;
    int whole, seen;
    for (; at < end; at += seen) {
        const uint8_t *from;
        int bytes;
        seen = character(at, end, &whole);
        from = whole ? at : (const uint8_t *)"\xef\xbf\xbd";
        bytes = whole ? seen : 3;
        if (out != NULL) {
            if (bytes > room - size)
                return -1;
            memcpy(out + size, from, (size_t)bytes);
        }
        size += bytes;
    }
    return size;
}

/* --- one row ----------------------------------------------------------------------------------------------------- */

static inline void measure(binary_column *column, int32_t length)
{
    column->rows++;
    if (length < 0)
        column->nulls++;
    else
        column->bytes += length;
}

/* Ends a row whose bytes are there; 0 when it doesn't fit. */
static inline int end_row(binary_column *column, int64_t length, int is_null)
{
    if (column->at_row >= column->rows)
        return 0;
    if (column->validity != NULL) {
        if (!is_null)
            column->validity[column->at_row >> 3] |= (uint8_t)(1u << (column->at_row & 7));
    } else if (is_null) {
        return 0;
    }
    column->at_byte += length;
    column->offsets[++column->at_row] = (int32_t)column->at_byte;
    return 1;
}

static inline int fill(binary_column *column, const uint8_t *data, int32_t length)
{
    if (length < 0)
        return end_row(column, 0, 1);
    if (length > column->bytes - column->at_byte)
        return 0;
    memcpy(column->data + column->at_byte, data, (size_t)length);
    return end_row(column, length, 0);
}

static int fill_name(binary_column *column, const uint8_t *name, int32_t length)
{
    int64_t size;
    if (is_ascii(name, length))
        return fill(column, name, length);
    size = clean_name(name, length, column->data + column->at_byte, column->bytes - column->at_byte);
    return size >= 0 && end_row(column, size, 0);
}

static void measure_name(binary_column *column, const uint8_t *name, int32_t length)
{
    column->rows++;
    column->bytes += is_ascii(name, length) ? length : clean_name(name, length, NULL, 0);
}

/* Reads the length of a field again, within its record; 0 where a payload changed since it was walked. */
static inline int field(const uint8_t **at, const uint8_t *end, const uint8_t **data, int32_t *length)
{
    if (!read_varint(at, end, length) || *length > end - *at)
        return 0;
    *data = *at;
    *at += *length > 0 ? *length : 0;
    return 1;
}

static inline int take_headers(table *to, const record_place *place, int filling)
{
    const uint8_t *at = place->headers, *data;
    int32_t count, length;
    if (!read_varint(&at, place->end, &count))
        return 0;
    while (count-- > 0) {
        if (!field(&at, place->end, &data, &length) || length < 0)
            return 0;
        if (filling && !fill_name(&to->header_name, data, length))
            return 0;
        if (!filling)
            measure_name(&to->header_name, data, length);
        if (!field(&at, place->end, &data, &length))
            return 0;
        if (filling && !fill(&to->header_value, data, length))
            return 0;
        if (!filling)
            measure(&to->header_value, length);
    }
    if (filling)
        to->header_offsets[to->at_row + 1] = (int32_t)to->header_name.at_row;
    return 1;
}

static inline int measure_row(table *to, const record_place *place)
{
    to->rows++;
    if (to->wanted & WANT_KEY)
        measure(&to->key, place->key_length);
    if (to->wanted & WANT_VALUE)
        measure(&to->value, place->value_length);
    return !(to->wanted & WANT_HEADERS) || take_headers(to, place, 0);
}

static inline int fill_row(table *to, const record_place *place, int64_t offset, int64_t timestamp, int32_t type)
{
    if (to->at_row >= to->rows)
        return 0;
    if (to->wanted & WANT_OFFSET)
        to->offset[to->at_row] = offset;
    if (to->wanted & WANT_TIMESTAMP)
        to->timestamp[to->at_row] = timestamp;
    if (to->wanted & WANT_TYPE)
        to->type[to->at_row] = type;
    if ((to->wanted & WANT_KEY) && !fill(&to->key, place->key, place->key_length))
        return 0;
    if ((to->wanted & WANT_VALUE) && !fill(&to->value, place->value, place->value_length))
        return 0;
    if ((to->wanted & WANT_HEADERS) && !take_headers(to, place, 1))
        return 0;
    to->at_row++;
    return 1;
}

/* --- all rows ---------------------------------------------------------------------------------------------------- */

static inline int read_source(table *to, const source *from, int filling, int64_t *record)
{
    const uint8_t *at = from->payload.buf, *end = at + from->payload.len;
    walk_result result = {0};
    record_place place;
    for (; result.index < from->count; result.index++) {
        int64_t offset, timestamp = from->append_ms;
        enum flaw flaw;
        *record = result.index;
        if (at == end)
            return FLAW_TOO_FEW;
        if ((flaw = walk_record(&at, end, 0, &result, &place)) != FLAW_NONE)
            return flaw;
        if (!add_long(from->base_offset, place.offset_delta, &offset))
            return FLAW_RANGE;
        if (!from->has_append_ms && !add_long(from->base_ms, place.timestamp_delta, &timestamp))
            return FLAW_RANGE;
        if (offset < to->from_offset || offset > to->last_offset || timestamp < to->from_ms || timestamp > to->last_ms)
            continue;
        if (filling ? !fill_row(to, &place, offset, timestamp, from->has_append_ms ? LOG_APPEND_TIME : CREATE_TIME)
                    : !measure_row(to, &place))
            return STOP_CHANGED;
    }
    *record = result.index;
    return at == end ? FLAW_NONE : FLAW_LEFT_OVER;
}

static int measure_all(table *to, const source *sources, Py_ssize_t count, position *at)
{
    for (at->batch = 0; at->batch < count; at->batch++) {
        int flaw = read_source(to, &sources[at->batch], 0, &at->record);
        if (flaw != FLAW_NONE)
            return flaw;
    }
    return FLAW_NONE;
}

/* Fills buffers of the measured sizes; 0 when what is read now is not what was measured. */
static int fill_all(table *to, const source *sources, Py_ssize_t count)
{
    int64_t record;
    for (Py_ssize_t n = 0; n < count; n++)
        if (read_source(to, &sources[n], 1, &record) != FLAW_NONE)
            return 0;
    return to->at_row == to->rows && to->key.at_row == to->key.rows && to->key.at_byte == to->key.bytes
           && to->value.at_row == to->value.rows && to->value.at_byte == to->value.bytes
           && to->header_name.at_row == to->header_name.rows && to->header_name.at_byte == to->header_name.bytes
           && to->header_value.at_row == to->header_value.rows && to->header_value.at_byte == to->header_value.bytes;
}

/* --- buffers ----------------------------------------------------------------------------------------------------- */

/* Makes a buffer of its final size; NULL with an exception set when memory is short. */
static void *make(PyObject **slot, int64_t count, int64_t size)
{
    if (count > PY_SSIZE_T_MAX / size) {
        PyErr_NoMemory();
        return NULL;
    }
    *slot = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(count * size));
    return *slot == NULL ? NULL : PyByteArray_AS_STRING(*slot);
}

static int make_binary(PyObject **slots, binary_column *column)
{
    if (column->nulls > 0) {
        if ((column->validity = make(&slots[0], (column->rows + 7) / 8, 1)) == NULL)
            return 0;
        memset(column->validity, 0, (size_t)((column->rows + 7) / 8));
    }
    if ((column->offsets = make(&slots[1], column->rows + 1, sizeof(int32_t))) == NULL)
        return 0;
    column->offsets[0] = 0;
    return (column->data = make(&slots[2], column->bytes, 1)) != NULL;
}

static int make_all(PyObject **slots, table *to)
{
    if ((to->wanted & WANT_OFFSET) && (to->offset = make(&slots[SLOT_OFFSET], to->rows, sizeof(int64_t))) == NULL)
        return 0;
    if ((to->wanted & WANT_TIMESTAMP)
        && (to->timestamp = make(&slots[SLOT_TIMESTAMP], to->rows, sizeof(int64_t))) == NULL)
        return 0;
    if ((to->wanted & WANT_TYPE) && (to->type = make(&slots[SLOT_TYPE], to->rows, sizeof(int32_t))) == NULL)
        return 0;
    if ((to->wanted & WANT_KEY) && !make_binary(&slots[SLOT_KEY], &to->key))
        return 0;
    if ((to->wanted & WANT_VALUE) && !make_binary(&slots[SLOT_VALUE], &to->value))
        return 0;
    if (!(to->wanted & WANT_HEADERS))
        return 1;
    to->header_offsets = make(&slots[SLOT_HEADER_OFFSETS], to->rows + 1, sizeof(int32_t));
    if (to->header_offsets == NULL)
        return 0;
    to->header_offsets[0] = 0;
    return make_binary(&slots[SLOT_HEADER_NAME], &to->header_name)
           && make_binary(&slots[SLOT_HEADER_VALUE], &to->header_value);
}

/* Whether positions of 32 bits reach the end of a column. */
static int is_small(const binary_column *column)
{
    return column->rows <= INT32_MAX && column->bytes <= INT32_MAX;
}

/* The buffers as a tuple, None where there is none. */
static PyObject *slots_object(PyObject **slots)
{
    PyObject *all = PyTuple_New(SLOTS);
    for (int n = 0; all != NULL && n < SLOTS; n++) {
        PyObject *item = slots[n] == NULL ? Py_None : slots[n];
        Py_INCREF(item);
        PyTuple_SET_ITEM(all, n, item);
    }
    return all;
}

static PyObject *read_into(PyObject **slots, table *to, const source *sources, Py_ssize_t count)
{
    position at = {0, 0};
    int flaw, filled = 1;

    Py_BEGIN_ALLOW_THREADS
    flaw = measure_all(to, sources, count, &at);
    Py_END_ALLOW_THREADS
    if (flaw == FLAW_NONE) {
        if (!is_small(&to->key) || !is_small(&to->value) || !is_small(&to->header_name)
            || !is_small(&to->header_value)) {
            PyErr_SetString(PyExc_OverflowError, "a column would have more than 2 GiB");
            return NULL;
        }
        if (!make_all(slots, to))
            return NULL;
        Py_BEGIN_ALLOW_THREADS
        filled = fill_all(to, sources, count);
        Py_END_ALLOW_THREADS
    }
    if (flaw == STOP_CHANGED || !filled) {
        PyErr_SetString(PyExc_RuntimeError, "a payload was changed while it was read");
        return NULL;
    }
    return Py_BuildValue("inLL(LLLL)N", flaw, at.batch, (long long)at.record, (long long)to->rows,
                         (long long)to->key.nulls, (long long)to->value.nulls, (long long)to->header_name.rows,
                         (long long)to->header_value.nulls, slots_object(slots));
}

/* --- arguments --------------------------------------------------------------------------------------------------- */

/* Takes one (payload, count, base_offset, base_timestamp_ms, append_time_ms); 0 with an exception set. */
static int take_source(PyObject *item, source *to)
{
    long long count, base_offset, base_ms;
    PyObject *append_ms;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "a payload comes as a tuple");
        return 0;
    }
    if (!PyArg_ParseTuple(item, "y*LLLO:columns", &to->payload, &count, &base_offset, &base_ms, &append_ms))
        return 0;
    to->count = count;
    to->base_offset = base_offset;
    to->base_ms = base_ms;
    to->has_append_ms = append_ms != Py_None;
    if (to->has_append_ms) {
        to->append_ms = PyLong_AsLongLong(append_ms);
        if (to->append_ms == -1 && PyErr_Occurred()) {
            PyBuffer_Release(&to->payload);
            return 0;
        }
    }
    return 1;
}

static PyObject *read_batches(PyObject *batches, table *to)
{
    PyObject *slots[SLOTS] = {NULL}, *read = NULL;
    /* Numbers and buffers of an item may run code of Python's, which could change a list: a tuple stays. */
    Py_ssize_t count = PyTuple_GET_SIZE(batches), taken = 0;
    source *sources = PyMem_Calloc((size_t)count + 1, sizeof(source));
    if (sources == NULL)
        return PyErr_NoMemory();
    while (taken < count && take_source(PyTuple_GET_ITEM(batches, taken), &sources[taken]))
        taken++;
    if (taken == count)
        read = read_into(slots, to, sources, count);
    for (Py_ssize_t n = 0; n < taken; n++)
        PyBuffer_Release(&sources[n].payload);
    PyMem_Free(sources);
    for (int n = 0; n < SLOTS; n++)
        Py_XDECREF(slots[n]);
    return read;
}

PyObject *records_columns(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *batches;
    long long from_offset, last_offset, from_ms, last_ms;
    table to;

    memset(&to, 0, sizeof(to));
    if (!PyArg_ParseTuple(args, "O!iLLLL:columns", &PyTuple_Type, &batches, &to.wanted, &from_offset, &last_offset,
                          &from_ms, &last_ms))
        return NULL;
    to.from_offset = from_offset;
    to.last_offset = last_offset;
    to.from_ms = from_ms;
    to.last_ms = last_ms;
    return read_batches(batches, &to);
}
