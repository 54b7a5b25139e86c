/* The inner loop of the tests' memory scan: tens of megabytes, byte by byte, take a second in a
 * debug build of Swift. */
#ifndef MEMORY_SEARCH_H
#define MEMORY_SEARCH_H

#include <stddef.h>
#include <stdint.h>

/* The first place at or after `at` where 8 bytes may be one of the wanted values: where
 * `filter`, a bit for each value of the first two bytes, says so. `count` where there is none. */
size_t memory_search_next(const uint8_t *bytes, size_t count, size_t at, const uint8_t filter[8192]);

#endif
