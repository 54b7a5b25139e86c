/* The inner loop of the tests' memory scan. In a debug build of Swift it would take a second for
 * tens of megabytes. */
#ifndef MEMORY_SEARCH_H
#define MEMORY_SEARCH_H

#include <stddef.h>
#include <stdint.h>

/* The first place at or after `at` where 8 bytes may be one of the wanted values; `count` if there
 * is none. The `filter` has a bit for each value of the first two bytes, set for a wanted one. */
size_t memory_search_next(const uint8_t *bytes, size_t count, size_t at, const uint8_t filter[8192]);

#endif
