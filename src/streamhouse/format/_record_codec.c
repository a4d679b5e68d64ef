/* Records to bytes and back, in C: `format/record_codec.py` says what is promised and has the same in Python, as
 * `format/partitioner.py` has for the hash of keys. tests/format/test_record_codec.py holds both to the same results.
 *
 * Encoding measures all records, then writes them. No code of Python's runs in between, so what was measured is what is
 * written. Objects are judged by their types before they are touched.
 */
#include "_records.h"

enum new_field { NEW_VALUE, NEW_KEY, NEW_HEADERS, NEW_TIMESTAMP, NEW_PARTITION, NEW_FIELDS };
enum { STORED_FIELDS = 5, HEADER_FIELDS = 2 };

/* A byte that says "a schema id follows", and the id. */
enum { FRAME_BYTES = 5 };

typedef struct {
    int64_t timestamp;
    int64_t timestamp_delta;
    int64_t body_bytes;
} measured;

/* --- writing -------------------------------------------------------------------------------------------------- */

static inline uint8_t *write_bytes(uint8_t *at, const char *data, Py_ssize_t length)
{
    at = write_varint(at, length);
    memcpy(at, data, (size_t)length);
    return at + length;
}

static inline uint8_t *write_field(uint8_t *at, PyObject *field)
{
    if (field == Py_None)
        return write_varint(at, -1);
    return write_bytes(at, PyBytes_AS_STRING(field), PyBytes_GET_SIZE(field));
}

static int wrong_type(const char *what, PyObject *thing)
{
    PyErr_Format(PyExc_TypeError, "%s can't be of type %.200s", what, Py_TYPE(thing)->tp_name);
    return -1;
}

/* Functions that measure return -1 with an exception set, or a flaw, or FLAW_NONE. */

static inline int measure_field(PyObject *field, const char *what, int64_t *bytes)
{
    if (field == Py_None) {
        *bytes += 1;
        return FLAW_NONE;
    }
    if (!PyBytes_Check(field))
        return wrong_type(what, field);
    *bytes += varint_bytes(PyBytes_GET_SIZE(field)) + PyBytes_GET_SIZE(field);
    return FLAW_NONE;
}

static int measure_header(PyObject *header, int64_t *bytes)
{
    Py_ssize_t length;
    PyObject *name;
    if (!PyTuple_Check(header))
        return wrong_type("a header", header);
    if (PyTuple_GET_SIZE(header) != HEADER_FIELDS) {
        PyErr_Format(PyExc_TypeError, "a header has a name and a value, not %zd fields", PyTuple_GET_SIZE(header));
        return -1;
    }
    name = PyTuple_GET_ITEM(header, 0);
    if (!PyUnicode_Check(name))
        return wrong_type("a header's name", name);
    if (PyUnicode_AsUTF8AndSize(name, &length) == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return -1;
        PyErr_Clear(); /* half of a surrogate pair */
        return FLAW_HEADER;
    }
    *bytes += varint_bytes(length) + length;
    return measure_field(PyTuple_GET_ITEM(header, 1), "a header's value", bytes);
}

static inline int measure_headers(PyObject *headers, int64_t *bytes)
{
    Py_ssize_t count;
    if (!PyTuple_Check(headers))
        return wrong_type("headers", headers);
    count = PyTuple_GET_SIZE(headers);
    *bytes += varint_bytes(count);
    for (Py_ssize_t n = 0; n < count; n++) {
        int flaw = measure_header(PyTuple_GET_ITEM(headers, n), bytes);
        if (flaw != FLAW_NONE)
            return flaw;
    }
    return FLAW_NONE;
}

static inline int measure_time(PyObject *record, int64_t now_ms, int64_t *timestamp)
{
    PyObject *own;
    int overflow;
    if (!PyTuple_Check(record))
        return wrong_type("a record", record);
    if (PyTuple_GET_SIZE(record) != NEW_FIELDS) {
        PyErr_Format(PyExc_TypeError, "a record has %d fields, not %zd", NEW_FIELDS, PyTuple_GET_SIZE(record));
        return -1;
    }
    own = PyTuple_GET_ITEM(record, NEW_TIMESTAMP);
    if (own == Py_None) {
        *timestamp = now_ms;
        return FLAW_NONE;
    }
    if (!PyLong_Check(own))
        return wrong_type("a timestamp", own);
    *timestamp = PyLong_AsLongLongAndOverflow(own, &overflow);
    return overflow ? FLAW_RANGE : FLAW_NONE;
}

/* `base_ms` is NULL for the first record. */
static int measure_record(PyObject *record, Py_ssize_t index, int64_t now_ms, const int64_t *base_ms, measured *out)
{
    int flaw = measure_time(record, now_ms, &out->timestamp);
    int64_t base = base_ms == NULL ? out->timestamp : *base_ms;
    int64_t bytes = 1; /* attributes */
    if (flaw != FLAW_NONE)
        return flaw;
    if (base < 0 ? out->timestamp > INT64_MAX + base : out->timestamp < INT64_MIN + base)
        return FLAW_RANGE;
    out->timestamp_delta = out->timestamp - base;
    bytes += varint_bytes(out->timestamp_delta) + varint_bytes(index);
    if ((flaw = measure_field(PyTuple_GET_ITEM(record, NEW_KEY), "a key", &bytes)) != FLAW_NONE)
        return flaw;
    if ((flaw = measure_field(PyTuple_GET_ITEM(record, NEW_VALUE), "a value", &bytes)) != FLAW_NONE)
        return flaw;
    if ((flaw = measure_headers(PyTuple_GET_ITEM(record, NEW_HEADERS), &bytes)) != FLAW_NONE)
        return flaw;
    out->body_bytes = bytes;
    return bytes > INT32_MAX ? FLAW_LENGTH : FLAW_NONE;
}

/* Writes a record that was measured: nothing can be wrong with it any more. */
static uint8_t *write_record(uint8_t *at, PyObject *record, Py_ssize_t index, const measured *facts)
{
    PyObject *headers = PyTuple_GET_ITEM(record, NEW_HEADERS);
    at = write_varint(at, facts->body_bytes);
    *at++ = 0; /* attributes */
    at = write_varint(at, facts->timestamp_delta);
    at = write_varint(at, index);
    at = write_field(at, PyTuple_GET_ITEM(record, NEW_KEY));
    at = write_field(at, PyTuple_GET_ITEM(record, NEW_VALUE));
    at = write_varint(at, PyTuple_GET_SIZE(headers));
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(headers); n++) {
        PyObject *header = PyTuple_GET_ITEM(headers, n);
        Py_ssize_t length;
        /* Kept by the string since it was measured. */
        const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(header, 0), &length);
        at = write_bytes(at, name, length);
        at = write_field(at, PyTuple_GET_ITEM(header, 1));
    }
    return at;
}

typedef struct {
    PyObject **records;
    Py_ssize_t count;
    int64_t now_ms;
    Py_ssize_t index; /* of the flaw */
    int64_t base_ms;
    int64_t max_ms;
} encoding;

/* Measures all records into `facts`; returns as the others, and in `total` what they take with their lengths. */
static int measure_all(encoding *job, measured *facts, int64_t *total)
{
    for (job->index = 0; job->index < job->count; job->index++) {
        Py_ssize_t n = job->index;
        int flaw = measure_record(job->records[n], n, job->now_ms, n ? &job->base_ms : NULL, &facts[n]);
        if (flaw != FLAW_NONE)
            return flaw;
        if (n == 0)
            job->base_ms = job->max_ms = facts[n].timestamp;
        else if (facts[n].timestamp > job->max_ms)
            job->max_ms = facts[n].timestamp;
        *total += varint_bytes(facts[n].body_bytes) + facts[n].body_bytes;
        if (*total > PY_SSIZE_T_MAX) {
            PyErr_NoMemory();
            return -1;
        }
    }
    return FLAW_NONE;
}

static PyObject *encode_all(encoding *job, measured *facts, Py_ssize_t room_bytes)
{
    int64_t total = room_bytes;
    PyObject *batch;
    uint8_t *at;
    int flaw = measure_all(job, facts, &total);
    if (flaw < 0)
        return NULL;
    if (flaw != FLAW_NONE) {
        if ((batch = PyByteArray_FromStringAndSize(NULL, 0)) == NULL)
            return NULL;
        return Py_BuildValue("inNii", flaw, job->index, batch, 0, 0);
    }
    if ((batch = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)total)) == NULL)
        return NULL;
    at = (uint8_t *)PyByteArray_AS_STRING(batch);
    memset(at, 0, (size_t)room_bytes);
    at += room_bytes;
    for (Py_ssize_t n = 0; n < job->count; n++)
        at = write_record(at, job->records[n], n, &facts[n]);
    assert(at == (uint8_t *)PyByteArray_AS_STRING(batch) + total);
    return Py_BuildValue("inNLL", FLAW_NONE, job->count, batch, (long long)job->base_ms, (long long)job->max_ms);
}

PyObject *records_encode(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *records, *encoded;
    long long now_ms;
    Py_ssize_t room_bytes;
    encoding job = {0};
    measured *facts;

    if (!PyArg_ParseTuple(args, "OLn:encode", &records, &now_ms, &room_bytes))
        return NULL;
    if (!PyList_Check(records) && !PyTuple_Check(records)) {
        wrong_type("records", records);
        return NULL;
    }
    if (room_bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "room can't be negative");
        return NULL;
    }
    job.records = PySequence_Fast_ITEMS(records);
    job.count = PySequence_Fast_GET_SIZE(records);
    job.now_ms = now_ms;
    if ((facts = PyMem_New(measured, job.count)) == NULL)
        return PyErr_NoMemory();
    encoded = encode_all(&job, facts, room_bytes);
    PyMem_Free(facts);
    return encoded;
}

/* --- reading -------------------------------------------------------------------------------------------------- */

/* A field as bytes or None, a new reference. */
static inline PyObject *field_object(const uint8_t *data, int32_t length)
{
    if (length < 0)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)data, length);
}

/* A header of a record that was walked, a new reference. */
static PyObject *header_object(const uint8_t **at, const uint8_t *end)
{
    int32_t length;
    const char *name;
    PyObject *key, *value, *pair;
    if (!read_varint(at, end, &length))
        return PyErr_Format(PyExc_SystemError, "a walked record has no header");
    name = (const char *)*at;
    *at += length;
    if ((key = PyUnicode_DecodeUTF8(name, length, "replace")) == NULL)
        return NULL;
    if (!read_varint(at, end, &length)) {
        Py_DECREF(key);
        return PyErr_Format(PyExc_SystemError, "a walked record has half a header");
    }
    if ((value = field_object(*at, length)) == NULL) {
        Py_DECREF(key);
        return NULL;
    }
    *at += length > 0 ? length : 0;
    if ((pair = PyTuple_New(HEADER_FIELDS)) == NULL) {
        Py_DECREF(key);
        Py_DECREF(value);
        return NULL;
    }
    PyTuple_SET_ITEM(pair, 0, key);
    PyTuple_SET_ITEM(pair, 1, value);
    return pair;
}

static PyObject *headers_object(const record_place *place)
{
    const uint8_t *at = place->headers;
    int32_t count;
    PyObject *headers;
    if (!read_varint(&at, place->end, &count))
        return PyErr_Format(PyExc_SystemError, "a walked record has no headers");
    headers = PyTuple_New(count);
    for (int32_t n = 0; headers != NULL && n < count; n++) {
        PyObject *pair = header_object(&at, place->end);
        if (pair == NULL)
            Py_CLEAR(headers);
        else
            PyTuple_SET_ITEM(headers, n, pair);
    }
    return headers;
}

/* What the numbers inside a payload are counted from, which records are wanted, and what to make of them. */
typedef struct {
    int64_t base_offset;
    int64_t base_ms;
    int64_t append_ms;
    int has_append_ms;
    int64_t from_offset;
    PyTypeObject *type;
    PyObject *records;
    Py_ssize_t max_records;
    int64_t max_bytes;
    int32_t max_headers;
} decoding;

static PyObject *record_object(PyTypeObject *type, int64_t offset, int64_t timestamp, const record_place *place)
{
    PyObject *fields[STORED_FIELDS] = {NULL};
    PyObject *record = NULL;
    if ((fields[0] = PyLong_FromLongLong(offset)) != NULL
        && (fields[1] = PyLong_FromLongLong(timestamp)) != NULL
        && (fields[2] = field_object(place->key, place->key_length)) != NULL
        && (fields[3] = field_object(place->value, place->value_length)) != NULL
        && (fields[4] = headers_object(place)) != NULL)
        record = type->tp_alloc(type, STORED_FIELDS);
    if (record == NULL) {
        for (int n = 0; n < STORED_FIELDS; n++)
            Py_XDECREF(fields[n]);
        return NULL;
    }
    for (int n = 0; n < STORED_FIELDS; n++)
        PyTuple_SET_ITEM(record, n, fields[n]);
#if PY_VERSION_HEX >= 0x030E0000
    ((PyTupleObject *)record)->ob_hash = -1; /* not known yet; the constructor that is passed by would say so */
#endif
    /* Numbers, bytes and an empty tuple can't be part of a cycle: nothing for the collector to visit. */
    if (PyTuple_GET_SIZE(fields[4]) == 0)
        PyObject_GC_UnTrack(record);
    return record;
}

/* The offset and the time of a record; FLAW_RANGE where they leave 64 bits. */
static inline enum flaw record_numbers(const decoding *job, const record_place *place, int64_t *offset,
                                       int64_t *timestamp)
{
    *timestamp = job->append_ms;
    if (!add_long(job->base_offset, place->offset_delta, offset))
        return FLAW_RANGE;
    if (!job->has_append_ms && !add_long(job->base_ms, place->timestamp_delta, timestamp))
        return FLAW_RANGE;
    return FLAW_NONE;
}

/* Walks over records below the first offset that is wanted; `at` and the index stay before the one that isn't. */
static enum flaw skip_records(const decoding *job, const uint8_t **at, const uint8_t *end, int64_t count,
                              walk_result *result)
{
    record_place place;
    int64_t offset, timestamp;
    enum flaw flaw;
    for (; result->index < count; result->index++) {
        const uint8_t *next = *at;
        if (next == end)
            return FLAW_TOO_FEW;
        if ((flaw = walk_record(&next, end, 0, result, &place)) != FLAW_NONE)
            return flaw;
        if ((flaw = record_numbers(job, &place, &offset, &timestamp)) != FLAW_NONE)
            return flaw;
        if (offset >= job->from_offset)
            return FLAW_NONE;
        *at = next;
    }
    return FLAW_NONE;
}

/* Appends a record to those decoded; -1 with an exception set, or a flaw, or FLAW_NONE. */
static int decode_record(const decoding *job, const record_place *place)
{
    int64_t offset, timestamp;
    PyObject *record;
    int failed;
    enum flaw flaw = record_numbers(job, place, &offset, &timestamp);
    if (flaw != FLAW_NONE)
        return flaw;
    if (offset < job->from_offset)
        return FLAW_NONE;
    if ((record = record_object(job->type, offset, timestamp, place)) == NULL)
        return -1;
    failed = PyList_Append(job->records, record);
    Py_DECREF(record);
    return failed;
}

/* Decodes records from `at` on, one at least, until they are as many, or as large, as is wanted at once. */
static int decode_records(const decoding *job, const uint8_t **at, const uint8_t *end, int64_t count,
                          walk_result *result)
{
    record_place place;
    int64_t bytes = 0;
    int flaw;
    result->max_headers = job->max_headers;
    for (; result->index < count; result->index++) {
        const uint8_t *next = *at;
        if (PyList_GET_SIZE(job->records) >= job->max_records || bytes >= job->max_bytes)
            return FLAW_NONE;
        if (next == end)
            return FLAW_TOO_FEW;
        if ((flaw = walk_record(&next, end, 0, result, &place)) != FLAW_NONE)
            return flaw;
        if ((flaw = decode_record(job, &place)) != FLAW_NONE)
            return flaw;
        bytes += next - *at;
        *at = next;
    }
    return *at == end ? FLAW_NONE : FLAW_LEFT_OVER;
}

static int decode_payload(const decoding *job, const uint8_t **at, const uint8_t *end, int64_t count,
                          walk_result *result)
{
    int flaw;
    if (end - *at > RELEASE_GIL_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        flaw = skip_records(job, at, end, count, result);
        Py_END_ALLOW_THREADS
    } else {
        flaw = skip_records(job, at, end, count, result);
    }
    return flaw != FLAW_NONE ? flaw : decode_records(job, at, end, count, result);
}

/* Whether an append time was given, and which; -1 with an exception set for what is no number. */
static int read_append_time(decoding *job, PyObject *append_ms)
{
    job->has_append_ms = append_ms != Py_None;
    if (!job->has_append_ms)
        return 0;
    job->append_ms = PyLong_AsLongLong(append_ms);
    return job->append_ms == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Whether instances are laid out as tuples are, so that they can be made without calling their constructor. */
static int is_plain_tuple_type(PyObject *type)
{
    return PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type)
           && ((PyTypeObject *)type)->tp_basicsize == PyTuple_Type.tp_basicsize
           && ((PyTypeObject *)type)->tp_itemsize == PyTuple_Type.tp_itemsize;
}

PyObject *records_decode(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer payload;
    long long count, base_offset, base_ms, from_offset, index, max_bytes;
    Py_ssize_t position, max_records;
    int max_headers, flaw;
    PyObject *append_ms, *type;
    decoding job = {0};
    walk_result result = {0};
    const uint8_t *start, *at;

    if (!PyArg_ParseTuple(args, "y*LLLOLOnLnLi:decode", &payload, &count, &base_offset, &base_ms, &append_ms,
                          &from_offset, &type, &position, &index, &max_records, &max_bytes, &max_headers))
        return NULL;
    job.base_offset = base_offset;
    job.base_ms = base_ms;
    job.from_offset = from_offset;
    job.max_records = max_records;
    job.max_bytes = max_bytes;
    job.max_headers = max_headers;
    result.index = index;
    if (read_append_time(&job, append_ms) < 0)
        goto failed;
    if (!is_plain_tuple_type(type)) {
        PyErr_SetString(PyExc_TypeError, "records can be made of a named tuple only");
        goto failed;
    }
    if (position < 0 || position > payload.len || index < 0) {
        PyErr_SetString(PyExc_ValueError, "a position lies outside of the payload");
        goto failed;
    }
    job.type = (PyTypeObject *)type;
    if ((job.records = PyList_New(0)) == NULL)
        goto failed;
    start = payload.buf;
    at = start + position;
    if ((flaw = decode_payload(&job, &at, start + payload.len, count, &result)) < 0) {
        Py_DECREF(job.records);
        goto failed;
    }
    position = at - start;
    PyBuffer_Release(&payload);
    return Py_BuildValue("iLNn", flaw, (long long)result.index, job.records, position);
failed:
    PyBuffer_Release(&payload);
    return NULL;
}

/* --- a record by its time ------------------------------------------------------------------------------------- */

typedef struct {
    int is_found;
    int64_t offset;
    int64_t timestamp;
} found_time;

static enum flaw find_time(const decoding *job, const uint8_t *at, const uint8_t *end, int64_t count,
                           int64_t timestamp, walk_result *result, found_time *found)
{
    record_place place;
    enum flaw flaw;
    for (; result->index < count; result->index++) {
        if (at == end)
            return FLAW_TOO_FEW;
        if ((flaw = walk_record(&at, end, 0, result, &place)) != FLAW_NONE)
            return flaw;
        if ((flaw = record_numbers(job, &place, &found->offset, &found->timestamp)) != FLAW_NONE)
            return flaw;
        if (found->offset >= job->from_offset && found->timestamp >= timestamp) {
            found->is_found = 1;
            return FLAW_NONE;
        }
    }
    return at == end ? FLAW_NONE : FLAW_LEFT_OVER;
}

PyObject *records_find_time(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer payload;
    long long count, base_offset, base_ms, from_offset, timestamp;
    PyObject *append_ms;
    decoding job = {0};
    walk_result result = {0};
    found_time found = {0};
    const uint8_t *start;
    enum flaw flaw;

    if (!PyArg_ParseTuple(args, "y*LLLOLL:find_time", &payload, &count, &base_offset, &base_ms, &append_ms,
                          &from_offset, &timestamp))
        return NULL;
    job.base_offset = base_offset;
    job.base_ms = base_ms;
    job.from_offset = from_offset;
    if (read_append_time(&job, append_ms) < 0) {
        PyBuffer_Release(&payload);
        return NULL;
    }
    start = payload.buf;
    Py_BEGIN_ALLOW_THREADS
    flaw = find_time(&job, start, start + payload.len, count, timestamp, &result, &found);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&payload);
    return Py_BuildValue("iLiLL", (int)flaw, (long long)result.index, found.is_found,
                         (long long)(found.is_found ? found.offset : 0),
                         (long long)(found.is_found ? found.timestamp : 0));
}

/* --- schema ids ----------------------------------------------------------------------------------------------- */

/* More ids than a batch may have; slots are a power of two, and many more than ids. */
enum { MOST_IDS = 2000, ID_SLOTS = 8192 };

typedef struct {
    int count, most, is_cut;
    int32_t ids[MOST_IDS];
    int64_t firsts[MOST_IDS];
    uint16_t slots[ID_SLOTS]; /* which id, from 1 on */
} id_table;

/* Remembers the first record that has an id; 0 when there are too many. */
static int note_id(id_table *table, int32_t id, int64_t index)
{
    uint32_t slot = ((uint32_t)id * UINT32_C(2654435761)) % ID_SLOTS;
    for (; table->slots[slot]; slot = (slot + 1) % ID_SLOTS)
        if (table->ids[table->slots[slot] - 1] == id)
            return 1;
    if (table->count >= table->most)
        return 0;
    table->ids[table->count] = id;
    table->firsts[table->count] = index;
    table->slots[slot] = (uint16_t)++table->count;
    return 1;
}

static enum flaw scan_payload(const uint8_t *at, const uint8_t *end, int64_t count, int of_key, id_table *table,
                              walk_result *result, int64_t *unframed)
{
    record_place place;
    enum flaw flaw;
    for (; result->index < count; result->index++) {
        const uint8_t *field;
        int32_t length, id;
        if (at == end)
            return FLAW_TOO_FEW;
        if ((flaw = walk_record(&at, end, 0, result, &place)) != FLAW_NONE)
            return flaw;
        field = of_key ? place.key : place.value;
        length = of_key ? place.key_length : place.value_length;
        if (length < 0)
            continue;
        if (length < FRAME_BYTES || field[0] != 0) {
            *unframed = result->index;
            return FLAW_NONE;
        }
        id = (int32_t)((uint32_t)field[1] << 24 | (uint32_t)field[2] << 16 | (uint32_t)field[3] << 8 | field[4]);
        if (!note_id(table, id, result->index)) {
            table->is_cut = 1;
            return FLAW_NONE;
        }
    }
    return at == end ? FLAW_NONE : FLAW_LEFT_OVER;
}

/* {id: first record}, a new reference. */
static PyObject *ids_object(const id_table *table)
{
    PyObject *ids = PyDict_New();
    for (int n = 0; ids != NULL && n < table->count; n++) {
        PyObject *key = PyLong_FromLong(table->ids[n]), *first = PyLong_FromLongLong(table->firsts[n]);
        if (key == NULL || first == NULL || PyDict_SetItem(ids, key, first) < 0)
            Py_CLEAR(ids);
        Py_XDECREF(key);
        Py_XDECREF(first);
    }
    return ids;
}

PyObject *records_schema_ids(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer payload;
    long long count;
    int of_key, max_ids;
    enum flaw flaw;
    int64_t unframed = -1;
    walk_result result = {0};
    id_table table;
    const uint8_t *start;
    PyObject *ids;

    if (!PyArg_ParseTuple(args, "y*Lpi:schema_ids", &payload, &count, &of_key, &max_ids))
        return NULL;
    memset(&table, 0, sizeof(table));
    table.most = max_ids < MOST_IDS ? max_ids : MOST_IDS;
    start = payload.buf;
    if (payload.len > RELEASE_GIL_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        flaw = scan_payload(start, start + payload.len, count, of_key, &table, &result, &unframed);
        Py_END_ALLOW_THREADS
    } else {
        flaw = scan_payload(start, start + payload.len, count, of_key, &table, &result, &unframed);
    }
    PyBuffer_Release(&payload);
    if ((ids = ids_object(&table)) == NULL)
        return NULL;
    return Py_BuildValue("iLNLO", (int)flaw, (long long)result.index, ids, (long long)unframed,
                         table.is_cut ? Py_True : Py_False);
}

/* --- keys ----------------------------------------------------------------------------------------------------- */

PyObject *records_murmur2(PyObject *Py_UNUSED(module), PyObject *key)
{
    uint32_t hash;
    if (!PyBytes_Check(key)) {
        wrong_type("a key", key);
        return NULL;
    }
    hash = murmur2((const uint8_t *)PyBytes_AS_STRING(key), (size_t)PyBytes_GET_SIZE(key));
    return PyLong_FromLong((int32_t)hash);
}
