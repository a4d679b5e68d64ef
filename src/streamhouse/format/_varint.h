/* Numbers of seven bits a byte, lowest first, as records, Avro and Protobuf write them. */
#ifndef STREAMHOUSE_VARINT_H
#define STREAMHOUSE_VARINT_H

#include <stdint.h>

/* Reads a number of at most 64 bits; 0 when the bytes end inside it or it is too long. */
static inline int read_unsigned(const uint8_t **at, const uint8_t *end, uint64_t *out)
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
        if (shift == 63 && (byte & 0x7e))
            return 0;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            break;
        shift += 7;
    }
    *out = value;
    *at = p;
    return 1;
}

/* The same for a zigzag number. */
static inline int read_varlong(const uint8_t **at, const uint8_t *end, int64_t *out)
{
    uint64_t value;
    if (!read_unsigned(at, end, &value))
        return 0;
    *out = (int64_t)((value >> 1) ^ (UINT64_C(0) - (value & 1)));
    return 1;
}

#endif
