/* The key filter of a block and the search for a key, in C: `format/key_filter.py` says what they are.
 *
 * Its size follows the number of different keys, which is known only after they were added once: where many keys
 * repeat, the filter is made again, smaller.
 */
#include "_records.h"

#include <string.h>

/* Of the smallest record: its length, attributes, timestamp, offset, key, value, headers. */
#define LEAST_RECORD_BYTES 7
#define BUCKET_WORDS 8
#define BUCKET_BYTES 32

static const uint32_t salts[BUCKET_WORDS] = {
    UINT32_C(0x47b6137b), UINT32_C(0x44974d91), UINT32_C(0x8824ad5b), UINT32_C(0xa2b7289d),
    UINT32_C(0x705495c7), UINT32_C(0x2df1424b), UINT32_C(0x9efc4947), UINT32_C(0x5c6bfb31),
};

static inline uint64_t little_word(const uint8_t *at, size_t bytes)
{
    uint64_t word = 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(&word, at, bytes);
#else
    while (bytes-- > 0)
        word = word << 8 | at[bytes];
#endif
    return word;
}

/* MurmurHash64A with seed 0. */
static inline uint64_t hash_key(const uint8_t *key, size_t length)
{
    const uint64_t multiplier = UINT64_C(0xc6a4a7935bd1e995);
    uint64_t hash = (uint64_t)length * multiplier;
    for (; length >= 8; key += 8, length -= 8) {
        uint64_t word = little_word(key, 8) * multiplier;
        word = (word ^ word >> 47) * multiplier;
        hash = (hash ^ word) * multiplier;
    }
    if (length > 0)
        hash = (hash ^ little_word(key, length)) * multiplier;
    hash = (hash ^ hash >> 47) * multiplier;
    return hash ^ hash >> 47;
}

/* The next record's key; its length, -1 for null, or BAD_RECORD. What stands behind a key isn't looked at. */
#define BAD_RECORD (-2)
static inline int32_t next_key(const uint8_t **at, const uint8_t *end, const uint8_t **key)
{
    int32_t length, offset_delta;
    int64_t timestamp_delta;
    const uint8_t *record_end;
    if (!read_varint(at, end, &length) || length < 1 || length > end - *at)
        return BAD_RECORD;
    record_end = *at + length;
    ++*at;
    if (!read_varlong(at, record_end, &timestamp_delta) || !read_varint(at, record_end, &offset_delta) ||
        !read_varint(at, record_end, &length) || length < -1 || length > record_end - *at)
        return BAD_RECORD;
    *key = *at;
    *at = record_end;
    return length;
}

/* The hashes of the keys of a payload: how many, or -1 where it isn't `count` records. */
static int64_t hash_keys(const uint8_t *at, const uint8_t *end, int64_t count, uint8_t *hashes)
{
    int64_t keys = 0;
    const uint8_t *key;
    for (int64_t index = 0; index < count; index++) {
        int32_t length = next_key(&at, end, &key);
        if (length == BAD_RECORD)
            return -1;
        if (length >= 0) {
            uint64_t hash = hash_key(key, (size_t)length);
            memcpy(hashes + 8 * keys++, &hash, 8);
        }
    }
    return at == end ? keys : -1;
}

/* Whether a record has this key, or may have it because the payload isn't `count` records. */
static int has_key(const uint8_t *at, const uint8_t *end, int64_t count, const uint8_t *wanted, Py_ssize_t size)
{
    const uint8_t *key;
    for (int64_t index = 0; index < count; index++) {
        int32_t length = next_key(&at, end, &key);
        if (length == BAD_RECORD || (length == size && memcmp(key, wanted, (size_t)size) == 0))
            return 1;
    }
    return at != end;
}

PyObject *records_has_key(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer payload, key;
    long long count;
    int result;

    if (!PyArg_ParseTuple(args, "y*Ly*:has_key", &payload, &count, &key))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    result = has_key(payload.buf, (const uint8_t *)payload.buf + payload.len, count, key.buf, key.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&payload);
    PyBuffer_Release(&key);
    return PyBool_FromLong(result);
}

PyObject *records_filter_hashes(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer payload;
    long long count;
    int64_t keys;
    PyObject *hashes;

    if (!PyArg_ParseTuple(args, "y*L:filter_hashes", &payload, &count))
        return NULL;
    if (count < 0 || count > payload.len / LEAST_RECORD_BYTES) {
        PyBuffer_Release(&payload);
        Py_RETURN_NONE;
    }
    if ((hashes = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)count * 8)) != NULL) {
        const uint8_t *start = payload.buf;
        uint8_t *out = (uint8_t *)PyByteArray_AS_STRING(hashes);
        if (payload.len > RELEASE_GIL_BYTES) {
            Py_BEGIN_ALLOW_THREADS
            keys = hash_keys(start, start + payload.len, count, out);
            Py_END_ALLOW_THREADS
        } else {
            keys = hash_keys(start, start + payload.len, count, out);
        }
        if (keys < 0) {
            Py_DECREF(hashes);
            hashes = Py_NewRef(Py_None);
        } else if (keys < count && PyByteArray_Resize(hashes, (Py_ssize_t)keys * 8) != 0) {
            Py_CLEAR(hashes);
        }
    }
    PyBuffer_Release(&payload);
    return hashes;
}

/* Adds the keys; how many were not there before, nearly. */
static size_t add_keys(uint8_t *filter, size_t buckets, const uint8_t *hashes, size_t count)
{
    size_t added = 0;
    for (size_t n = 0; n < count; n++) {
        uint32_t words[BUCKET_WORDS], missing = 0;
        uint64_t hash;
        uint8_t *bucket;
        memcpy(&hash, hashes + 8 * n, 8);
        bucket = filter + ((hash >> 32) * buckets >> 32) * BUCKET_BYTES;
        memcpy(words, bucket, BUCKET_BYTES);
        for (int word = 0; word < BUCKET_WORDS; word++) {
            uint32_t bit = UINT32_C(1) << ((uint32_t)hash * salts[word] >> 27);
            missing |= ~words[word] & bit;
            words[word] |= bit;
        }
        memcpy(bucket, words, BUCKET_BYTES);
        added += missing != 0;
    }
    return added;
}

static size_t buckets_for(size_t keys, unsigned bits_per_key)
{
    size_t buckets = (keys * bits_per_key + 8 * BUCKET_BYTES - 1) / (8 * BUCKET_BYTES);
    return buckets > 0 ? buckets : 1;
}

/* Fills a cleared filter of `most` buckets; how many of them it takes. */
static size_t fill(uint8_t *filter, size_t most, const uint8_t *hashes, size_t count, unsigned bits_per_key)
{
    size_t buckets = buckets_for(add_keys(filter, most, hashes, count), bits_per_key);
    if (buckets * 4 > most * 3)
        buckets = most;
    else {
        memset(filter, 0, most * BUCKET_BYTES);
        add_keys(filter, buckets, hashes, count);
    }
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    for (size_t at = 0; at < buckets * BUCKET_BYTES; at += 4) {
        uint8_t word[4] = {filter[at + 3], filter[at + 2], filter[at + 1], filter[at]};
        memcpy(filter + at, word, 4);
    }
#endif
    return buckets;
}

PyObject *records_key_filter(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer hashes;
    unsigned bits_per_key;
    size_t count, most, buckets;
    PyObject *filter;

    if (!PyArg_ParseTuple(args, "y*I:key_filter", &hashes, &bits_per_key))
        return NULL;
    count = (size_t)hashes.len / 8;
    most = buckets_for(count, bits_per_key);
    if ((filter = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(most * BUCKET_BYTES))) != NULL) {
        uint8_t *bytes = (uint8_t *)PyByteArray_AS_STRING(filter);
        Py_BEGIN_ALLOW_THREADS
        memset(bytes, 0, most * BUCKET_BYTES);
        buckets = fill(bytes, most, hashes.buf, count, bits_per_key);
        Py_END_ALLOW_THREADS
        if (buckets < most && PyByteArray_Resize(filter, (Py_ssize_t)(buckets * BUCKET_BYTES)) != 0)
            Py_CLEAR(filter);
    }
    PyBuffer_Release(&hashes);
    return filter;
}
