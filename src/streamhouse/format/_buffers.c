/* Joining buffers without the GIL: `format/buffers.py` says for whom. */
#include "_records.h"

#include <string.h>

/* Takes the buffers of all objects and adds up their lengths; how many it has taken. */
static Py_ssize_t take_buffers(PyObject *objects, Py_buffer *buffers, Py_ssize_t *total)
{
    Py_ssize_t taken, count = PySequence_Fast_GET_SIZE(objects);
    for (taken = 0; taken < count; taken++) {
        if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(objects, taken), &buffers[taken], PyBUF_SIMPLE) < 0)
            return taken;
        if (buffers[taken].len > PY_SSIZE_T_MAX - *total) {
            PyErr_NoMemory();
            return taken + 1;
        }
        *total += buffers[taken].len;
    }
    return taken;
}

static void copy_buffers(char *to, const Py_buffer *buffers, Py_ssize_t count)
{
    Py_ssize_t at;
    for (at = 0; at < count; at++) {
        if (buffers[at].len)
            memcpy(to, buffers[at].buf, (size_t)buffers[at].len);
        to += buffers[at].len;
    }
}

PyObject *records_join(PyObject *Py_UNUSED(module), PyObject *arg)
{
    /* A tuple of its own: nobody shortens it while its buffers are taken. */
    PyObject *joined = NULL, *objects = PySequence_Tuple(arg);
    Py_ssize_t taken, count, total = 0;
    Py_buffer *buffers;

    if (objects == NULL)
        return NULL;
    count = PyTuple_GET_SIZE(objects);
    buffers = PyMem_New(Py_buffer, count ? count : 1);
    if (buffers == NULL) {
        Py_DECREF(objects);
        return PyErr_NoMemory();
    }
    taken = take_buffers(objects, buffers, &total);
    if (!PyErr_Occurred() && (joined = PyBytes_FromStringAndSize(NULL, total)) != NULL) {
        if (total > RELEASE_GIL_BYTES) {
            Py_BEGIN_ALLOW_THREADS
            copy_buffers(PyBytes_AS_STRING(joined), buffers, count);
            Py_END_ALLOW_THREADS
        } else {
            copy_buffers(PyBytes_AS_STRING(joined), buffers, count);
        }
    }
    while (taken > 0)
        PyBuffer_Release(&buffers[--taken]);
    PyMem_Free(buffers);
    Py_DECREF(objects);
    return joined;
}
