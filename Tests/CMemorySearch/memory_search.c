#include "memory_search.h"

size_t memory_search_next(const uint8_t *bytes, size_t count, size_t at, const uint8_t filter[8192]) {
    for (; at + 8 <= count; at++) {
        unsigned value = bytes[at] | (unsigned)bytes[at + 1] << 8;
        if (filter[value >> 3] >> (value & 7) & 1) return at;
    }
    return count;
}
