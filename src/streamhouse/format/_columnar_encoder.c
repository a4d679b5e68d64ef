/* Arrow's columns to batches of records, in C: `format/columnar_encoder.py` says what is promised and has the same in
 * Python. tests/format/test_column_batches.py holds both to the same results.
 *
 * Rows are put in the order of their partitions and measured without the GIL, so that every batch is made at its final
 * size, and then written. Somebody may change a column in between, so writing trusts nothing that measuring saw: every
 * read stays inside its column, every write inside its record, and it gives up where they don't fit.
 */
#include "_records.h"

/* What is left of the 2 GiB of a record once its numbers are written. */
#define MAX_FIELDS ((int64_t)INT32_MAX - 32)

/* Bytes or text, as Arrow has them; `first` is the row of the buffers where the column begins. */
typedef struct {
    Py_buffer validity, offsets, data;
    int has_validity, is_there;
    int64_t first;
    int64_t rows;
} bytes_column;

/* Numbers of a fixed width. */
typedef struct {
    Py_buffer validity, data;
    int has_validity, is_there;
    int64_t first;
} number_column;

/* A list of headers per row. */
typedef struct {
    Py_buffer validity, offsets;
    int has_validity, is_there;
    int64_t first;
    bytes_column names, values;
} header_column;

typedef struct {
    int64_t rows;
    bytes_column key, value;
    number_column timestamp;
    header_column headers;
    int64_t now_ms;
    int64_t batch_bytes;
} columns;

/* A batch to be: rows [from, to) of the order. */
typedef struct {
    int32_t slot;
    int64_t from, to;
    int64_t base_ms, max_ms;
    int64_t bytes;
} planned_batch;

typedef struct {
    int32_t *order; /* rows by partition, each partition's as they came */
    int32_t *body;  /* bytes of the record at that place of the order, without its length */
    planned_batch *batches;
    Py_ssize_t count, room;
    int64_t row; /* of the flaw */
} plan;

/* A field of a row; length -1: null. */
typedef struct {
    const uint8_t *data;
    int64_t length;
} field;

/* --- reading columns --------------------------------------------------------------------------------------------- */

static inline int32_t int_at(const Py_buffer *buffer, int64_t index)
{
    int32_t number;
    memcpy(&number, (const uint8_t *)buffer->buf + index * (int64_t)sizeof(number), sizeof(number));
    return number;
}

static inline int64_t long_at(const Py_buffer *buffer, int64_t index)
{
    int64_t number;
    memcpy(&number, (const uint8_t *)buffer->buf + index * (int64_t)sizeof(number), sizeof(number));
    return number;
}

static inline int bit_at(const Py_buffer *validity, int64_t index)
{
    return ((const uint8_t *)validity->buf)[index >> 3] >> (index & 7) & 1;
}

/* Reads a field; 0 where its positions are impossible. */
static inline int read_field(const bytes_column *column, int64_t row, field *to)
{
    int64_t at = column->first + row, start, end;
    to->data = NULL;
    to->length = -1;
    if (!column->is_there || (column->has_validity && !bit_at(&column->validity, at)))
        return 1;
    start = int_at(&column->offsets, at);
    end = int_at(&column->offsets, at + 1);
    if (start < 0 || end < start || end > column->data.len)
        return 0;
    to->data = (const uint8_t *)column->data.buf + start;
    to->length = end - start;
    return 1;
}

/* Reads which headers [from, to) a row has; 0 where that is impossible. */
static inline int read_span(const header_column *column, int64_t row, int64_t *from, int64_t *to)
{
    int64_t at = column->first + row;
    *from = *to = 0;
    if (!column->is_there || (column->has_validity && !bit_at(&column->validity, at)))
        return 1;
    *from = int_at(&column->offsets, at);
    *to = int_at(&column->offsets, at + 1);
    return *from >= 0 && *to >= *from && *to <= column->names.rows && *to <= column->values.rows;
}

static inline int64_t time_of(const columns *from, int64_t row)
{
    int64_t at = from->timestamp.first + row;
    if (!from->timestamp.is_there || (from->timestamp.has_validity && !bit_at(&from->timestamp.validity, at)))
        return from->now_ms;
    return long_at(&from->timestamp.data, at);
}

/* --- measuring --------------------------------------------------------------------------------------------------- */

static inline int64_t field_bytes(const field *of)
{
    return of->length < 0 ? 1 : varint_bytes(of->length) + of->length;
}

static enum flaw measure_headers(const header_column *column, int64_t row, int64_t *bytes)
{
    int64_t from, to;
    field name, value;
    if (!read_span(column, row, &from, &to))
        return FLAW_HEADER_COUNT;
    *bytes += varint_bytes(to - from);
    for (; from < to; from++) {
        if (!read_field(&column->names, from, &name) || name.length < 0 || !read_field(&column->values, from, &value))
            return FLAW_HEADER;
        *bytes += field_bytes(&name) + field_bytes(&value);
    }
    return FLAW_NONE;
}

/* What a row's fields take, whatever its place in a batch. */
static inline enum flaw measure_fields(const columns *from, int64_t row, int64_t *bytes)
{
    enum flaw flaw;
    field key, value;
    if (!read_field(&from->key, row, &key))
        return FLAW_KEY;
    if (!read_field(&from->value, row, &value))
        return FLAW_VALUE;
    *bytes = field_bytes(&key) + field_bytes(&value);
    if ((flaw = measure_headers(&from->headers, row, bytes)) != FLAW_NONE)
        return flaw;
    return *bytes > MAX_FIELDS ? FLAW_LENGTH : FLAW_NONE;
}

static int begin_batch(plan *to, int32_t slot, int64_t at, int64_t timestamp)
{
    if (to->count == to->room) {
        Py_ssize_t room = to->room ? to->room * 2 : 64;
        planned_batch *more = PyMem_RawRealloc(to->batches, (size_t)room * sizeof(planned_batch));
        if (more == NULL)
            return 0;
        to->batches = more;
        to->room = room;
    }
    to->batches[to->count++] = (planned_batch){slot, at, at, timestamp, timestamp, 0};
    return 1;
}

static int is_far(int64_t timestamp, int64_t base)
{
    return base < 0 ? timestamp > INT64_MAX + base : timestamp < INT64_MIN + base;
}

/* Bytes of a record that is the batch's next, without its length. */
static inline int64_t body_bytes(const planned_batch *batch, int64_t timestamp, int64_t fields)
{
    return 1 + varint_bytes(timestamp - batch->base_ms) + varint_bytes(batch->to - batch->from) + fields;
}

/* Puts the row at a place of the order into the last batch, or into a new one where that is full. */
static inline int plan_row(const columns *from, plan *to, int32_t slot, int64_t at, int is_first)
{
    int64_t row = to->order[at], timestamp = time_of(from, row), fields, body = 0;
    planned_batch *batch = is_first ? NULL : &to->batches[to->count - 1];
    enum flaw flaw = measure_fields(from, row, &fields);
    to->row = row;
    if (flaw != FLAW_NONE)
        return flaw;
    if (batch != NULL && !is_far(timestamp, batch->base_ms))
        body = body_bytes(batch, timestamp, fields);
    if (body == 0 || batch->bytes + varint_bytes(body) + body > from->batch_bytes) {
        if (!begin_batch(to, slot, at, timestamp))
            return -1;
        batch = &to->batches[to->count - 1];
        body = body_bytes(batch, timestamp, fields);
    }
    to->body[at] = (int32_t)body;
    batch->bytes += varint_bytes(body) + body;
    batch->to = at + 1;
    if (timestamp > batch->max_ms)
        batch->max_ms = timestamp;
    return FLAW_NONE;
}

/* Plans all rows; `ends` has where each partition's rows end in the order. Returns a flaw, or -1 when memory is short. */
static int plan_all(const columns *from, plan *to, const int64_t *ends, int32_t slots)
{
    int64_t at = 0;
    for (int32_t slot = 0; slot < slots; slot++) {
        int64_t start = at;
        for (; at < ends[slot]; at++) {
            int flaw = plan_row(from, to, slot, at, at == start);
            if (flaw != FLAW_NONE)
                return flaw;
        }
    }
    return FLAW_NONE;
}

/* Sorts rows by partition and leaves in `ends` where each one's end; 0 where a partition is out of range. */
static int put_in_order(const Py_buffer *partitions, int64_t rows, int32_t slots, int32_t *order, int64_t *ends)
{
    int64_t at = 0;
    for (int64_t row = 0; row < rows; row++) {
        int32_t slot = int_at(partitions, row);
        if (slot < 0 || slot >= slots)
            return 0;
        ends[slot]++;
    }
    for (int32_t slot = 0; slot < slots; slot++) {
        int64_t count = ends[slot];
        ends[slot] = at;
        at += count;
    }
    for (int64_t row = 0; row < rows; row++) {
        int32_t slot = int_at(partitions, row);
        if (slot < 0 || slot >= slots || ends[slot] >= rows)
            return 0;
        order[ends[slot]++] = (int32_t)row;
    }
    return 1;
}

/* --- writing ----------------------------------------------------------------------------------------------------- */

/* Writing returns NULL where there is no room. */

static inline uint8_t *put_number(uint8_t *at, const uint8_t *end, int64_t number)
{
    return end - at < varint_bytes(number) ? NULL : write_varint(at, number);
}

static inline uint8_t *put_field(uint8_t *at, const uint8_t *end, const field *from)
{
    if ((at = put_number(at, end, from->length)) == NULL || from->length <= 0)
        return at;
    if (from->length > end - at)
        return NULL;
    memcpy(at, from->data, (size_t)from->length);
    return at + from->length;
}

static uint8_t *put_headers(uint8_t *at, const uint8_t *end, const header_column *column, int64_t row)
{
    int64_t from, to;
    field name, value;
    if (!read_span(column, row, &from, &to) || (at = put_number(at, end, to - from)) == NULL)
        return NULL;
    for (; from < to; from++) {
        if (!read_field(&column->names, from, &name) || !read_field(&column->values, from, &value))
            return NULL;
        if ((at = put_field(at, end, &name)) == NULL || (at = put_field(at, end, &value)) == NULL)
            return NULL;
    }
    return at;
}

/* Writes the record at a place of the order. */
static inline uint8_t *put_record(uint8_t *at, const uint8_t *batch_end, const columns *from, const plan *by,
                                  const planned_batch *batch, int64_t place)
{
    int64_t row = by->order[place], timestamp = time_of(from, row);
    const uint8_t *end;
    field key, value;
    if ((at = put_number(at, batch_end, by->body[place])) == NULL || by->body[place] > batch_end - at)
        return NULL;
    end = at + by->body[place];
    *at++ = 0; /* attributes */
    if (is_far(timestamp, batch->base_ms) || !read_field(&from->key, row, &key) || !read_field(&from->value, row, &value))
        return NULL;
    if ((at = put_number(at, end, timestamp - batch->base_ms)) == NULL
        || (at = put_number(at, end, place - batch->from)) == NULL || (at = put_field(at, end, &key)) == NULL
        || (at = put_field(at, end, &value)) == NULL || (at = put_headers(at, end, &from->headers, row)) == NULL)
        return NULL;
    return at == end ? at : NULL;
}

/* Writes a batch's records into as many bytes as were measured; 0 when columns are not what they were. */
static int put_batch(uint8_t *at, const columns *from, const plan *by, const planned_batch *batch)
{
    const uint8_t *end = at + batch->bytes;
    for (int64_t place = batch->from; place < batch->to; place++)
        if ((at = put_record(at, end, from, by, batch, place)) == NULL)
            return 0;
    return at == end;
}

/* --- results ----------------------------------------------------------------------------------------------------- */

/* One (partition, records, base_timestamp_ms, max_timestamp_ms, batch), where the batch is only room as yet. */
static PyObject *batch_object(const planned_batch *batch, Py_ssize_t room_bytes)
{
    PyObject *bytes;
    if (batch->bytes > PY_SSIZE_T_MAX - room_bytes)
        return PyErr_NoMemory();
    if ((bytes = PyByteArray_FromStringAndSize(NULL, room_bytes + (Py_ssize_t)batch->bytes)) == NULL)
        return NULL;
    memset(PyByteArray_AS_STRING(bytes), 0, (size_t)room_bytes);
    return Py_BuildValue("iLLLN", (int)batch->slot, (long long)(batch->to - batch->from), (long long)batch->base_ms,
                         (long long)batch->max_ms, bytes);
}

static PyObject *make_batches(const columns *from, const plan *by, Py_ssize_t room_bytes)
{
    PyObject *made = PyList_New(by->count);
    int filled = 1;
    for (Py_ssize_t n = 0; made != NULL && n < by->count; n++) {
        PyObject *batch = batch_object(&by->batches[n], room_bytes);
        if (batch == NULL)
            Py_CLEAR(made);
        else
            PyList_SET_ITEM(made, n, batch);
    }
    if (made == NULL)
        return NULL;
    /* Nobody else knows the list yet, so nobody can change it meanwhile. */
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t n = 0; filled && n < by->count; n++) {
        PyObject *bytes = PyTuple_GET_ITEM(PyList_GET_ITEM(made, n), 4);
        filled = put_batch((uint8_t *)PyByteArray_AS_STRING(bytes) + room_bytes, from, by, &by->batches[n]);
    }
    Py_END_ALLOW_THREADS
    if (!filled) {
        Py_DECREF(made);
        PyErr_SetString(PyExc_RuntimeError, "a column was changed while it was read");
        return NULL;
    }
    return made;
}

static PyObject *encode_planned(const columns *from, plan *by, const Py_buffer *partitions, int64_t *ends,
                                int32_t slots, Py_ssize_t room_bytes)
{
    int flaw = FLAW_NONE, ordered;
    PyObject *made;
    Py_BEGIN_ALLOW_THREADS
    ordered = put_in_order(partitions, from->rows, slots, by->order, ends);
    if (ordered)
        flaw = plan_all(from, by, ends, slots);
    Py_END_ALLOW_THREADS
    if (!ordered) {
        PyErr_SetString(PyExc_ValueError, "a row's partition is out of range");
        return NULL;
    }
    if (flaw < 0)
        return PyErr_NoMemory();
    made = flaw == FLAW_NONE ? make_batches(from, by, room_bytes) : PyList_New(0);
    return made == NULL ? NULL : Py_BuildValue("iLN", flaw, (long long)(flaw == FLAW_NONE ? from->rows : by->row), made);
}

static PyObject *encode_rows(const columns *from, const Py_buffer *partitions, int32_t slots, Py_ssize_t room_bytes)
{
    plan by = {NULL, NULL, NULL, 0, 0, 0};
    PyObject *made = NULL;
    int64_t *ends = PyMem_RawCalloc((size_t)slots + 1, sizeof(int64_t));
    /* Zeros are rows too, should somebody change the partitions while rows are put in order. */
    by.order = PyMem_RawCalloc((size_t)from->rows + 1, sizeof(int32_t));
    by.body = PyMem_RawMalloc(((size_t)from->rows + 1) * sizeof(int32_t));
    if (ends == NULL || by.order == NULL || by.body == NULL)
        PyErr_NoMemory();
    else
        made = encode_planned(from, &by, partitions, ends, slots, room_bytes);
    PyMem_RawFree(ends);
    PyMem_RawFree(by.order);
    PyMem_RawFree(by.body);
    PyMem_RawFree(by.batches);
    return made;
}

/* --- arguments --------------------------------------------------------------------------------------------------- */

/* Whether buffers reach as far as the rows from `first` on; `extra`: positions are one more than rows. */
static int reaches(const Py_buffer *validity, int has_validity, const Py_buffer *items, int64_t first, int64_t rows,
                   int size, int extra)
{
    if (first < 0 || first > INT32_MAX || rows > INT32_MAX)
        return 0;
    return items->len / size >= first + rows + extra && (!has_validity || validity->len >= (first + rows + 7) / 8);
}

static int out_of_reach(void)
{
    PyErr_SetString(PyExc_ValueError, "a column is shorter than it should be");
    return 0;
}

static int take_optional(PyObject *given, Py_buffer *to, int *is_there)
{
    if (given == Py_None)
        return 1;
    if (PyObject_GetBuffer(given, to, PyBUF_SIMPLE) < 0)
        return 0;
    *is_there = 1;
    return 1;
}

/* Takes (first, validity, offsets, data), or None; `rows` -1: as many as there are. 0 with an exception set. */
static int take_bytes(PyObject *item, int64_t rows, bytes_column *to)
{
    PyObject *validity;
    long long first;
    if (item == Py_None)
        return 1;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "a column comes as a tuple");
        return 0;
    }
    if (!PyArg_ParseTuple(item, "LOy*y*:column", &first, &validity, &to->offsets, &to->data))
        return 0;
    to->is_there = 1;
    to->first = first;
    if (!take_optional(validity, &to->validity, &to->has_validity))
        return 0;
    if (rows < 0)
        rows = to->offsets.len / (Py_ssize_t)sizeof(int32_t) - first - 1;
    to->rows = rows > 0 ? rows : 0;
    if (to->rows > 0 && !reaches(&to->validity, to->has_validity, &to->offsets, first, rows, sizeof(int32_t), 1))
        return out_of_reach();
    return 1;
}

/* Takes (first, validity, data), or None. */
static int take_numbers(PyObject *item, int64_t rows, int size, number_column *to)
{
    PyObject *validity;
    long long first;
    if (item == Py_None)
        return 1;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "a column comes as a tuple");
        return 0;
    }
    if (!PyArg_ParseTuple(item, "LOy*:column", &first, &validity, &to->data))
        return 0;
    to->is_there = 1;
    to->first = first;
    if (!take_optional(validity, &to->validity, &to->has_validity))
        return 0;
    return reaches(&to->validity, to->has_validity, &to->data, first, rows, size, 0) || out_of_reach();
}

/* Takes (first, validity, offsets, names, values), or None. */
static int take_header_column(PyObject *item, int64_t rows, header_column *to)
{
    PyObject *validity, *names, *values;
    long long first;
    if (item == Py_None)
        return 1;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "a column comes as a tuple");
        return 0;
    }
    if (!PyArg_ParseTuple(item, "LOy*OO:column", &first, &validity, &to->offsets, &names, &values))
        return 0;
    to->is_there = 1;
    to->first = first;
    if (!take_optional(validity, &to->validity, &to->has_validity))
        return 0;
    if (!reaches(&to->validity, to->has_validity, &to->offsets, first, rows, sizeof(int32_t), 1))
        return out_of_reach();
    return take_bytes(names, -1, &to->names) && take_bytes(values, -1, &to->values);
}

static void release_bytes(bytes_column *column)
{
    if (column->has_validity)
        PyBuffer_Release(&column->validity);
    if (column->is_there) {
        PyBuffer_Release(&column->offsets);
        PyBuffer_Release(&column->data);
    }
}

static void release_numbers(number_column *column)
{
    if (column->has_validity)
        PyBuffer_Release(&column->validity);
    if (column->is_there)
        PyBuffer_Release(&column->data);
}

static void release_columns(columns *all)
{
    release_bytes(&all->key);
    release_bytes(&all->value);
    release_numbers(&all->timestamp);
    if (all->headers.has_validity)
        PyBuffer_Release(&all->headers.validity);
    if (all->headers.is_there)
        PyBuffer_Release(&all->headers.offsets);
    release_bytes(&all->headers.names);
    release_bytes(&all->headers.values);
}

/* encode_columns(rows, (key, value, timestamp, headers), partitions, slots, now_ms, batch_bytes, room_bytes) */
PyObject *records_encode_columns(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *key, *value, *timestamp, *headers, *made = NULL;
    Py_buffer partitions;
    long long rows, now_ms, batch_bytes;
    int slots;
    Py_ssize_t room_bytes;
    columns from;

    memset(&from, 0, sizeof(from));
    if (!PyArg_ParseTuple(args, "L(OOOO)y*iLLn:encode_columns", &rows, &key, &value, &timestamp, &headers, &partitions,
                          &slots, &now_ms, &batch_bytes, &room_bytes))
        return NULL;
    from.rows = rows;
    from.now_ms = now_ms;
    from.batch_bytes = batch_bytes;
    if (rows < 0 || rows >= INT32_MAX || slots < 0 || slots == INT32_MAX || room_bytes < 0
        || partitions.len / (Py_ssize_t)sizeof(int32_t) < rows)
        out_of_reach();
    else if (take_bytes(key, rows, &from.key) && take_bytes(value, rows, &from.value)
             && take_numbers(timestamp, rows, sizeof(int64_t), &from.timestamp)
             && take_header_column(headers, rows, &from.headers))
        made = encode_rows(&from, &partitions, slots, room_bytes);
    release_columns(&from);
    PyBuffer_Release(&partitions);
    return made;
}

/* --- partitions of rows ------------------------------------------------------------------------------------------ */

/* Chooses a partition for every row; returns the row that can't have one, or -1. */
static int64_t choose_all(const bytes_column *key, const number_column *given, int64_t rows, int32_t count,
                          int32_t *next, int32_t *to)
{
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = given->first + row;
        field own;
        if (given->is_there && (!given->has_validity || bit_at(&given->validity, at))) {
            to[row] = int_at(&given->data, at);
            if (to[row] < 0 || to[row] >= count)
                return row;
        } else if (!read_field(key, row, &own)) {
            return row;
        } else if (own.length < 0) {
            to[row] = *next;
            *next = *next + 1 == count ? 0 : *next + 1;
        } else {
            /* The sign bit is cut off, as Java's `toPositive` does. */
            to[row] = (int32_t)((murmur2(own.data, (size_t)own.length) & INT32_MAX) % (uint32_t)count);
        }
    }
    return -1;
}

/* partition_rows(rows, key, given, count, next) -> (row or -1, partitions, next) */
PyObject *records_partition_rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *key, *given, *made = NULL;
    long long rows, refused = -1;
    int32_t next;
    int count, begin;
    bytes_column keys;
    number_column numbers;

    memset(&keys, 0, sizeof(keys));
    memset(&numbers, 0, sizeof(numbers));
    if (!PyArg_ParseTuple(args, "LOOii:partition_rows", &rows, &key, &given, &count, &begin))
        return NULL;
    next = begin;
    if (rows < 0 || rows >= INT32_MAX || count < 1 || begin < 0 || begin >= count)
        out_of_reach();
    else if (take_bytes(key, rows, &keys) && take_numbers(given, rows, sizeof(int32_t), &numbers)
             && (made = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(rows * (long long)sizeof(int32_t)))) != NULL) {
        int32_t *to = (int32_t *)PyByteArray_AS_STRING(made);
        Py_BEGIN_ALLOW_THREADS
        refused = choose_all(&keys, &numbers, rows, count, &next, to);
        Py_END_ALLOW_THREADS
    }
    release_bytes(&keys);
    release_numbers(&numbers);
    return made == NULL ? NULL : Py_BuildValue("LNi", refused, made, (int)next);
}
