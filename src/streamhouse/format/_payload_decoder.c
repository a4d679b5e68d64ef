/* Payloads written with a schema become columns: Avro's and Protobuf's bytes, and where JSON's objects end.
 *
 * A schema comes as a tree of nodes, laid out flat: children of a node stand behind each other. Payloads are walked twice,
 * once to count what every node gets, once to write it, so that buffers have their size before the first byte is written.
 * A payload that can't be read, or that says something unusual, is marked, and all its columns are null: whoever called
 * reads it again with more patience. Every read is bounded by the end of its payload, recursion by the height of the
 * tree, and what is written by what was counted of the same bytes, which nobody can change while the GIL is held.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_varint.h"

/* As in format/payload_decoder.py, class Op. */
enum op {
    OP_NULL = 0,
    OP_BOOL = 1,
    OP_INT = 2,
    OP_LONG = 3,
    OP_FLOAT = 4,
    OP_DOUBLE = 5,
    OP_BYTES = 6,
    OP_FIXED = 7,    /* param: its size */
    OP_ENUM = 8,     /* param: how many symbols */
    OP_DECIMAL = 9,  /* param: its size where it is fixed, else -1 */
    OP_RECORD = 10,
    OP_UNION = 11,   /* only to be skipped */
    OP_OPTION = 12,  /* param: which branch is null */
    OP_ARRAY = 13,
    OP_MAP = 14,     /* children: key, value */
    OP_ABSENT = 15,  /* a field that the writer doesn't have: nothing is read, nothing is kept */
    OP_MESSAGE = 20, /* Protobuf from here */
    OP_LIST = 21,
    OP_P_BOOL = 22,
    OP_P_INT32 = 23,
    OP_P_SINT32 = 24,
    OP_P_UINT32 = 25,
    OP_P_INT64 = 26, /* and uint64, whose bits are the same */
    OP_P_SINT64 = 27,
    OP_P_FIXED32 = 28, /* unsigned */
    OP_P_SFIXED32 = 29,
    OP_P_FIXED64 = 30, /* also signed ones and doubles */
    OP_P_FLOAT = 31,
    OP_P_BYTES = 32
};

#define MAX_FIELDS 256
#define MAX_ENTRIES INT32_MAX

typedef struct {
    int32_t op;
    int32_t param;
    int32_t first;
    int32_t count;
    int32_t wanted;
    int32_t number; /* of a field of Protobuf */
    int32_t has_presence;
    int32_t oneof; /* 0: none */
} node;

typedef struct {
    int64_t entries;
    int64_t bytes;
    int64_t nulls;
    uint8_t *valid;
    uint8_t *data;
    int32_t *offsets;
} column;

typedef struct {
    const node *nodes;
    column *columns;
    int writes;
} walker;

/* Bytes that a value of a node takes in its data buffer; -1 where that is told by offsets. */
static int width_of(const node *n)
{
    switch (n->op) {
    case OP_BOOL:
    case OP_P_BOOL:
        return 1;
    case OP_INT:
    case OP_FLOAT:
    case OP_ENUM:
    case OP_P_INT32:
    case OP_P_SINT32:
    case OP_P_SFIXED32:
    case OP_P_FLOAT:
        return 4;
    case OP_LONG:
    case OP_DOUBLE:
    case OP_P_UINT32:
    case OP_P_INT64:
    case OP_P_SINT64:
    case OP_P_FIXED32:
    case OP_P_FIXED64:
        return 8;
    case OP_DECIMAL:
        return 16;
    case OP_BYTES:
    case OP_FIXED:
    case OP_P_BYTES:
        return -1;
    default:
        return 0;
    }
}

static int has_offsets(const node *n)
{
    return width_of(n) < 0 || n->op == OP_ARRAY || n->op == OP_MAP || n->op == OP_LIST;
}

/* --- what a node gets ------------------------------------------------------------------------------------------ */

static inline void put_fixed(walker *w, int32_t index, const void *value, size_t width)
{
    column *c = &w->columns[index];
    if (!w->nodes[index].wanted)
        return;
    if (w->writes) {
        c->valid[c->entries] = 1;
        memcpy(c->data + c->entries * (int64_t)width, value, width);
    }
    c->entries++;
}

static inline void put_bytes(walker *w, int32_t index, const uint8_t *value, int64_t length)
{
    column *c = &w->columns[index];
    if (!w->nodes[index].wanted)
        return;
    if (w->writes) {
        c->valid[c->entries] = 1;
        if (length > 0)
            memcpy(c->data + c->bytes, value, (size_t)length);
        c->offsets[c->entries + 1] = (int32_t)(c->bytes + length);
    }
    c->bytes += length;
    c->entries++;
}

/* A struct or a list whose children have their values already. */
static inline void put_whole(walker *w, int32_t index, int64_t child_entries)
{
    column *c = &w->columns[index];
    if (!w->nodes[index].wanted)
        return;
    if (w->writes) {
        c->valid[c->entries] = 1;
        if (c->offsets != NULL)
            c->offsets[c->entries + 1] = (int32_t)child_entries;
    }
    c->entries++;
}

/* How many values the children of a list have by now. */
static inline int64_t items_of(const walker *w, int32_t index)
{
    const node *n = &w->nodes[index];
    int32_t child = n->first;
    while (w->nodes[child].op == OP_OPTION)
        child = w->nodes[child].first;
    return w->columns[child].entries;
}

static void put_null(walker *w, int32_t index)
{
    const node *n = &w->nodes[index];
    column *c = &w->columns[index];
    if (!n->wanted)
        return;
    if (n->op == OP_OPTION) {
        put_null(w, n->first);
        return;
    }
    if (n->op == OP_ABSENT || n->op == OP_NULL)
        return;
    if (w->writes) {
        int width = width_of(n);
        c->valid[c->entries] = 0;
        c->nulls++;
        if (width > 0)
            memset(c->data + c->entries * width, 0, (size_t)width);
        if (c->offsets != NULL)
            c->offsets[c->entries + 1] = c->offsets[c->entries];
    }
    c->entries++;
    if (n->op == OP_RECORD || n->op == OP_MESSAGE) {
        int32_t i;
        for (i = 0; i < n->count; i++)
            put_null(w, n->first + i);
    }
}

/* --- Avro ------------------------------------------------------------------------------------------------------ */

static int walk_avro(walker *w, int32_t index, const uint8_t **at, const uint8_t *end);

/* A whole number of big-endian bytes in 16 little-endian ones; 0 where it has more. */
static int put_decimal(walker *w, int32_t index, const uint8_t *value, int64_t length)
{
    uint8_t out[16];
    uint8_t fill = length > 0 && (value[0] & 0x80) ? 0xff : 0;
    int i;
    while (length > 16) {
        if (*value != fill || ((value[1] & 0x80) != (fill & 0x80)))
            return 0;
        value++;
        length--;
    }
    for (i = 0; i < 16; i++)
        out[i] = i < length ? value[length - 1 - i] : fill;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return 0; /* Arrow wants the machine's order; the patient way has it */
#endif
    put_fixed(w, index, out, 16);
    return 1;
}

static int walk_blocks(walker *w, int32_t index, const uint8_t **at, const uint8_t *end)
{
    const node *n = &w->nodes[index];
    int64_t count, size;
    for (;;) {
        if (!read_varlong(at, end, &count))
            return 0;
        if (count == 0)
            break;
        if (count < 0) {
            if (count == INT64_MIN || !read_varlong(at, end, &size))
                return 0;
            count = -count;
        }
        while (count-- > 0) {
            const uint8_t *before = *at;
            int32_t i;
            for (i = 0; i < n->count; i++)
                if (!walk_avro(w, n->first + i, at, end))
                    return 0;
            if (*at == before) /* schemas with such items have no business here */
                return 0;
        }
    }
    put_whole(w, index, n->wanted ? items_of(w, index) : 0);
    return 1;
}

static int walk_scalar(walker *w, int32_t index, const uint8_t **at, const uint8_t *end)
{
    const node *n = &w->nodes[index];
    int64_t number;
    int32_t small;
    uint8_t flag;
    switch (n->op) {
    case OP_BOOL:
        if (end - *at < 1)
            return 0;
        flag = **at != 0;
        *at += 1;
        put_fixed(w, index, &flag, 1);
        return 1;
    case OP_INT:
    case OP_ENUM:
        if (!read_varlong(at, end, &number) || number < INT32_MIN || number > INT32_MAX)
            return 0;
        if (n->op == OP_ENUM && (number < 0 || number >= n->param))
            return 0;
        small = (int32_t)number;
        put_fixed(w, index, &small, 4);
        return 1;
    case OP_LONG:
        if (!read_varlong(at, end, &number))
            return 0;
        put_fixed(w, index, &number, 8);
        return 1;
    case OP_FLOAT:
    case OP_DOUBLE: {
        int width = n->op == OP_FLOAT ? 4 : 8;
        if (end - *at < width)
            return 0;
        put_fixed(w, index, *at, (size_t)width);
        *at += width;
        return 1;
    }
    default: /* bytes, fixed, decimal */
        if (n->param >= 0 && n->op != OP_BYTES)
            number = n->param;
        else if (!read_varlong(at, end, &number))
            return 0;
        if (number < 0 || number > end - *at)
            return 0;
        if (n->op == OP_DECIMAL) {
            if (!put_decimal(w, index, *at, number))
                return 0;
        } else {
            put_bytes(w, index, *at, number);
        }
        *at += number;
        return 1;
    }
}

static int walk_avro(walker *w, int32_t index, const uint8_t **at, const uint8_t *end)
{
    const node *n = &w->nodes[index];
    int64_t branch;
    int32_t i;
    switch (n->op) {
    case OP_NULL:
    case OP_ABSENT:
        return 1;
    case OP_RECORD:
        for (i = 0; i < n->count; i++)
            if (!walk_avro(w, n->first + i, at, end))
                return 0;
        put_whole(w, index, 0);
        return 1;
    case OP_UNION:
        if (!read_varlong(at, end, &branch) || branch < 0 || branch >= n->count)
            return 0;
        return walk_avro(w, n->first + (int32_t)branch, at, end);
    case OP_OPTION:
        if (!read_varlong(at, end, &branch) || branch < 0 || branch > 1)
            return 0;
        if (branch != n->param)
            return walk_avro(w, n->first, at, end);
        put_null(w, n->first);
        return 1;
    case OP_ARRAY:
    case OP_MAP:
        return walk_blocks(w, index, at, end);
    default:
        return walk_scalar(w, index, at, end);
    }
}

/* --- Protobuf -------------------------------------------------------------------------------------------------- */

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static int wire_of(int32_t op)
{
    switch (op) {
    case OP_P_FIXED32:
    case OP_P_SFIXED32:
    case OP_P_FLOAT:
        return WIRE_32;
    case OP_P_FIXED64:
        return WIRE_64;
    case OP_P_BYTES:
    case OP_MESSAGE:
        return WIRE_BYTES;
    default:
        return WIRE_VARINT;
    }
}

static int skip_wire(unsigned wire, const uint8_t **at, const uint8_t *end)
{
    uint64_t length;
    switch (wire) {
    case WIRE_VARINT:
        return read_unsigned(at, end, &length);
    case WIRE_64:
        length = 8;
        break;
    case WIRE_32:
        length = 4;
        break;
    case WIRE_BYTES:
        if (!read_unsigned(at, end, &length))
            return 0;
        break;
    default: /* groups */
        return 0;
    }
    if (length > (uint64_t)(end - *at))
        return 0;
    *at += length;
    return 1;
}

static void put_varint(walker *w, int32_t index, uint64_t value)
{
    int32_t small;
    int64_t number;
    uint8_t flag;
    switch (w->nodes[index].op) {
    case OP_P_BOOL:
        flag = value != 0;
        put_fixed(w, index, &flag, 1);
        return;
    case OP_P_INT32:
        small = (int32_t)(uint32_t)value;
        put_fixed(w, index, &small, 4);
        return;
    case OP_P_SINT32:
        small = (int32_t)(((uint32_t)value >> 1) ^ (0u - ((uint32_t)value & 1)));
        put_fixed(w, index, &small, 4);
        return;
    case OP_P_UINT32:
        number = (int64_t)(uint32_t)value;
        put_fixed(w, index, &number, 8);
        return;
    case OP_P_SINT64:
        number = (int64_t)((value >> 1) ^ (UINT64_C(0) - (value & 1)));
        put_fixed(w, index, &number, 8);
        return;
    default:
        put_fixed(w, index, &value, 8);
    }
}

static int walk_message(walker *w, int32_t index, const uint8_t *at, const uint8_t *end);

/* One value of a field, whose wire type is the expected one. */
static int walk_value(walker *w, int32_t index, const uint8_t **at, const uint8_t *end)
{
    const node *n = &w->nodes[index];
    uint64_t value;
    int64_t wide;
    uint32_t word;
    switch (wire_of(n->op)) {
    case WIRE_32:
        if (end - *at < 4)
            return 0;
        if (n->op == OP_P_FIXED32) {
            memcpy(&word, *at, 4);
            wide = (int64_t)word;
            put_fixed(w, index, &wide, 8);
        } else {
            put_fixed(w, index, *at, 4);
        }
        *at += 4;
        return 1;
    case WIRE_64:
        if (end - *at < 8)
            return 0;
        put_fixed(w, index, *at, 8);
        *at += 8;
        return 1;
    case WIRE_BYTES:
        if (!read_unsigned(at, end, &value) || value > (uint64_t)(end - *at))
            return 0;
        if (n->op == OP_P_BYTES)
            put_bytes(w, index, *at, (int64_t)value);
        else if (!walk_message(w, index, *at, *at + value))
            return 0;
        *at += value;
        return 1;
    default:
        if (!read_unsigned(at, end, &value))
            return 0;
        put_varint(w, index, value);
        return 1;
    }
}

static int walk_packed(walker *w, int32_t index, const uint8_t **at, const uint8_t *end)
{
    uint64_t length;
    const uint8_t *stop;
    if (!read_unsigned(at, end, &length) || length > (uint64_t)(end - *at))
        return 0;
    stop = *at + length;
    while (*at < stop)
        if (!walk_value(w, index, at, stop))
            return 0;
    return 1;
}

static void put_missing(walker *w, int32_t index)
{
    static const uint8_t zeros[16] = {0};
    const node *n = &w->nodes[index];
    if (n->op == OP_LIST)
        put_whole(w, index, n->wanted ? items_of(w, index) : 0);
    else if (n->has_presence)
        put_null(w, index);
    else if (n->op == OP_P_BYTES)
        put_bytes(w, index, zeros, 0);
    else
        put_fixed(w, index, zeros, (size_t)width_of(n));
}

/* Fields that come twice, and two members of a oneof, mean something; who is more patient may tell what. */
static int walk_message(walker *w, int32_t index, const uint8_t *at, const uint8_t *end)
{
    const node *n = &w->nodes[index];
    uint8_t seen[MAX_FIELDS] = {0}, chosen[MAX_FIELDS] = {0};
    int32_t i, guess = 0;
    if (n->count > MAX_FIELDS)
        return 0;
    while (at < end) {
        uint64_t tag;
        unsigned wire;
        const node *field = NULL, *value;
        int32_t place;
        if (!read_unsigned(&at, end, &tag) || tag >> 3 == 0 || tag >> 3 > 536870911)
            return 0;
        wire = (unsigned)(tag & 7);
        for (i = 0; i < n->count; i++) { /* fields come in the order of their numbers, as a rule */
            int32_t tried = guess + i < n->count ? guess + i : guess + i - n->count;
            if ((uint64_t)w->nodes[n->first + tried].number == tag >> 3) {
                guess = tried;
                field = &w->nodes[n->first + tried];
                break;
            }
        }
        if (field == NULL) {
            if (!skip_wire(wire, &at, end))
                return 0;
            continue;
        }
        place = n->first + guess;
        value = field->op == OP_LIST ? &w->nodes[field->first] : field;
        if (field->op == OP_LIST && wire == WIRE_BYTES && wire_of(value->op) != WIRE_BYTES) {
            if (!walk_packed(w, field->first, &at, end))
                return 0;
            continue;
        }
        if (wire != (unsigned)wire_of(value->op))
            return 0;
        if (field->op == OP_LIST) {
            if (!walk_value(w, field->first, &at, end))
                return 0;
            continue;
        }
        if (seen[guess] || (field->oneof > 0 && chosen[field->oneof - 1]))
            return 0;
        seen[guess] = 1;
        if (field->oneof > 0)
            chosen[field->oneof - 1] = 1;
        if (!walk_value(w, place, &at, end))
            return 0;
    }
    for (i = 0; i < n->count; i++)
        if (!seen[i])
            put_missing(w, n->first + i);
    put_whole(w, index, 0);
    return 1;
}

/* --- the whole ------------------------------------------------------------------------------------------------- */

static int check_nodes(const node *nodes, Py_ssize_t count)
{
    Py_ssize_t i;
    for (i = 0; i < count; i++) {
        const node *n = &nodes[i];
        int least = n->op == OP_MAP ? 2 : n->op == OP_OPTION || n->op == OP_ARRAY || n->op == OP_LIST ? 1 : 0;
        if (n->count < least || n->first < 0 || n->count < 0 || (int64_t)n->first + n->count > count)
            return 0;
        if (n->count > 0 && n->first <= i) /* children behind their parents: no way back, so no endless way down */
            return 0;
        if (n->oneof < 0 || n->oneof > MAX_FIELDS || n->op < 0 || n->op > OP_P_BYTES)
            return 0;
    }
    return count > 0;
}

/* Buffers for what was counted; 0 where that is more than fits. */
static int make_room(const node *nodes, column *columns, Py_ssize_t count, int64_t limit)
{
    Py_ssize_t i;
    int64_t total = 0;
    for (i = 0; i < count; i++) {
        column *c = &columns[i];
        int width = width_of(&nodes[i]);
        int64_t data = width < 0 ? c->bytes : c->entries * width;
        if (!nodes[i].wanted)
            continue;
        if (c->entries > MAX_ENTRIES - 1 || c->bytes > INT32_MAX)
            return 0;
        total += c->entries * 5 + data;
        if (total > limit)
            return 0;
        c->valid = PyMem_Malloc((size_t)(c->entries + 1));
        c->data = PyMem_Malloc((size_t)(data + 1));
        c->offsets = has_offsets(&nodes[i]) ? PyMem_Malloc((size_t)(c->entries + 1) * 4) : NULL;
        if (c->valid == NULL || c->data == NULL || (has_offsets(&nodes[i]) && c->offsets == NULL))
            return 0;
        if (c->offsets != NULL)
            c->offsets[0] = 0;
        c->entries = c->bytes = c->nulls = 0;
    }
    return 1;
}

static PyObject *told_column(const node *n, const column *c)
{
    int width = width_of(n);
    int64_t data = width < 0 ? c->bytes : c->entries * width;
    PyObject *valid, *bytes, *offsets;
    if (!n->wanted || c->valid == NULL)
        Py_RETURN_NONE;
    valid = c->nulls ? PyByteArray_FromStringAndSize((const char *)c->valid, c->entries) : Py_NewRef(Py_None);
    bytes = width ? PyByteArray_FromStringAndSize((const char *)c->data, data) : Py_NewRef(Py_None);
    offsets = c->offsets ? PyByteArray_FromStringAndSize((const char *)c->offsets, (c->entries + 1) * 4)
                         : Py_NewRef(Py_None);
    if (valid == NULL || bytes == NULL || offsets == NULL) {
        Py_XDECREF(valid);
        Py_XDECREF(bytes);
        Py_XDECREF(offsets);
        return NULL;
    }
    return Py_BuildValue("LLNNN", (long long)c->entries, (long long)c->nulls, valid, bytes, offsets);
}

static int walk_row(walker *w, const uint8_t *at, const uint8_t *end)
{
    if (w->nodes[0].op != OP_MESSAGE)
        return walk_avro(w, 0, &at, end) && at == end;
    /* The indexes of the message: a single zero is the file's first one. */
    return at < end && *at == 0 && walk_message(w, 0, at + 1, end);
}

/* 1: read it, 0: it is null, 2 (set here): can't be read. */
static void walk_rows(walker *w, const uint8_t *data, const int32_t *offsets, uint8_t *states, Py_ssize_t rows,
                      int32_t skip)
{
    Py_ssize_t row;
    for (row = 0; row < rows; row++) {
        if (states[row] == 1 && !walk_row(w, data + offsets[row] + skip, data + offsets[row + 1]))
            states[row] = 2;
        if (states[row] != 1)
            put_null(w, 0);
    }
}

static int check_rows(const Py_buffer *data, const Py_buffer *offsets, const Py_buffer *states, int32_t skip)
{
    const int32_t *positions = offsets->buf;
    Py_ssize_t row;
    if (offsets->len != (states->len + 1) * 4 || skip < 0)
        return 0;
    for (row = 0; row < states->len; row++) {
        int64_t start = positions[row], stop = positions[row + 1];
        if (start < 0 || stop < start || stop > data->len)
            return 0;
        if (((uint8_t *)states->buf)[row] == 1 && stop - start < skip)
            return 0;
    }
    return 1;
}

/* decode(nodes, data, offsets, states, skip, limit_bytes): `states` is changed. */
static PyObject *decode(PyObject *module, PyObject *args)
{
    Py_buffer nodes, data, offsets, states;
    int skip;
    long long limit;
    PyObject *told = NULL;
    column *columns = NULL;
    Py_ssize_t count, i;
    walker w;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*w*iL:decode", &nodes, &data, &offsets, &states, &skip, &limit))
        return NULL;
    count = nodes.len / (Py_ssize_t)sizeof(node);
    if (nodes.len % (Py_ssize_t)sizeof(node) || !check_nodes(nodes.buf, count) ||
        !check_rows(&data, &offsets, &states, skip)) {
        PyErr_SetString(PyExc_ValueError, "nodes or positions are malformed");
        goto done;
    }
    if ((columns = PyMem_Calloc((size_t)count, sizeof(column))) == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    w.nodes = nodes.buf;
    w.columns = columns;
    w.writes = 0;
    walk_rows(&w, data.buf, offsets.buf, states.buf, states.len, skip);
    if (!make_room(w.nodes, columns, count, limit)) {
        PyErr_SetString(PyExc_OverflowError, "the columns would be too large");
        goto done;
    }
    w.writes = 1;
    walk_rows(&w, data.buf, offsets.buf, states.buf, states.len, skip);
    told = PyList_New(count);
    for (i = 0; told != NULL && i < count; i++) {
        PyObject *each = told_column(&w.nodes[i], &columns[i]);
        if (each == NULL)
            Py_CLEAR(told);
        else
            PyList_SET_ITEM(told, i, each);
    }
done:
    for (i = 0; columns != NULL && i < count; i++) {
        PyMem_Free(columns[i].valid);
        PyMem_Free(columns[i].data);
        PyMem_Free(columns[i].offsets);
    }
    PyMem_Free(columns);
    PyBuffer_Release(&nodes);
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&states);
    return told;
}

/* --- JSON ------------------------------------------------------------------------------------------------------ */

/* Whether the bytes are one object and nothing else, as far as brackets and quotes tell, and not nested too deeply. */
static int is_object(const uint8_t *at, const uint8_t *end, int max_depth)
{
    uint64_t objects = 0; /* a bit per level: an object, or a list */
    int depth = 0;
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
        at++;
    if (at == end || *at != '{')
        return 0;
    for (; at < end; at++) {
        switch (*at) {
        case '"':
            for (at++; at < end && *at != '"'; at++)
                if (*at == '\\')
                    at++;
            if (at >= end)
                return 0;
            break;
        case 'N': /* NaN and Infinity are no JSON, whatever other parsers think */
        case 'I':
            return 0;
        case '{':
        case '[':
            if (depth >= max_depth)
                return 0;
            objects = objects << 1 | (*at == '{');
            depth++;
            break;
        case '}':
        case ']':
            if (depth == 0 || (objects & 1) != (*at == '}'))
                return 0;
            objects >>= 1;
            if (--depth == 0) {
                for (at++; at < end; at++)
                    if (*at != ' ' && *at != '\t' && *at != '\n' && *at != '\r')
                        return 0;
                return 1;
            }
            break;
        }
    }
    return 0;
}

/* json_objects(data, offsets, states, skip): marks what is no object; `data` is changed where prefixes were. */
static PyObject *json_objects(PyObject *module, PyObject *args)
{
    Py_buffer data, offsets, states;
    int skip;
    Py_ssize_t row;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*y*w*i:json_objects", &data, &offsets, &states, &skip))
        return NULL;
    if (!check_rows(&data, &offsets, &states, skip)) {
        PyErr_SetString(PyExc_ValueError, "positions are malformed");
    } else {
        uint8_t *bytes = data.buf, *state = states.buf;
        const int32_t *positions = offsets.buf;
        for (row = 0; row < states.len; row++) {
            uint8_t *start = bytes + positions[row], *stop = bytes + positions[row + 1];
            if (state[row] == 1 && !is_object(start + skip, stop, 60))
                state[row] = 2;
            if (state[row] == 1)
                memset(start, ' ', (size_t)skip);
            else
                memset(start, ' ', (size_t)(stop - start));
            if (start < stop)
                *start = '\n';
        }
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&states);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"decode", decode, METH_VARARGS,
     "decode(nodes, data, offsets, states, skip, limit_bytes) -> [(entries, nulls, valid, data, offsets) or None]"},
    {"json_objects", json_objects, METH_VARARGS, "json_objects(data, offsets, states, skip)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_schema_columns", "Payloads of schemas as columns, in C.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__schema_columns(void)
{
    return PyModuleDef_Init(&module);
}
