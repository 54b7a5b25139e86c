// What the files hold, and what they may hold.
//
// A file is an array of 64-bit words, because a store of one to memory can't tear. Each is 40 bits of hash over (seed,
// file, index, version) above 24 bits of version; 0 is what was never written or was cut off. The model keeps for each
// word the versions it may have: one, after an acknowledged operation; more, after one that failed half-way.
#include "soak.h"

#include <string.h>

#define VERSION_BITS 24
#define VERSION_MASK ((1u << VERSION_BITS) - 1)

// splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t next_random(struct worker *w) {
    w->random += 0x9e3779b97f4a7c15u;
    return mix(w->random);
}

uint64_t word_for(uint64_t seed, uint32_t file_id, size_t index, uint32_t version) {
    if (version == 0) return 0;
    uint64_t hash = mix(mix(seed ^ ((uint64_t)file_id << 32 | (uint32_t)index)) ^ version);
    return hash << VERSION_BITS | (version & VERSION_MASK);
}

bool is_word_of(uint64_t seed, uint32_t file_id, size_t index, uint64_t word) {
    return word == word_for(seed, file_id, index, word & VERSION_MASK);
}

bool owns(const struct file *f, size_t index) {
    return !f->is_striped || index / STRIPE_WORDS % f->stripes == f->stripe;
}

void fill_words(struct worker *w, struct file *f, uint64_t *words, size_t first, size_t count, uint32_t version) {
    for (size_t i = 0; i < count; i++) words[i] = word_for(w->seed, f->id, first + i, version);
}

bool has_room(const struct file *f, size_t first, size_t count) {
    for (size_t i = first; i < first + count; i++) {
        if (f->model[i].version[CANDIDATES - 1] != NO_VERSION) return false;
    }
    return true;
}

void commit(struct file *f, size_t first, size_t count, uint32_t version) {
    for (size_t i = first; i < first + count; i++) {
        memset(&f->model[i], 0xff, sizeof f->model[i]);
        f->model[i].version[0] = version;
    }
    if (count && version > f->accepted_version) f->accepted_version = version;
}

void maybe(struct file *f, size_t first, size_t count, uint32_t version) {
    for (size_t i = first; i < first + count; i++) {
        uint32_t *candidates = f->model[i].version;
        for (int c = 0; c < CANDIDATES; c++) {
            if (candidates[c] == version) break;
            if (candidates[c] == NO_VERSION) {
                candidates[c] = version;
                break;
            }
        }
    }
}

// ward's pages do not end where words do (docs/format.md: 3,804 bytes are in the first one, 4,060 in each that follows).
// An operation that failed half-way may have changed the one page and not the other, and the word between them by half.
static bool is_of_two_pages(const struct worker *w, const struct file *f, size_t index, uint64_t word) {
    const size_t first_page = 3804, page = 4060, half = WORD_BYTES / 2;
    size_t middle = index * WORD_BYTES + half;
    if (w->is_plain || middle < first_page || (middle - first_page) % page != 0) return false;
    bool has_low = false, has_high = false;
    for (int c = 0; c < CANDIDATES && f->model[index].version[c] != NO_VERSION; c++) {
        uint64_t candidate = word_for(w->seed, f->id, index, f->model[index].version[c]);
        has_low |= (uint32_t)candidate == (uint32_t)word;
        has_high |= candidate >> 32 == word >> 32;
    }
    return has_low && has_high;
}

bool check_words(struct worker *w, struct file *f, const void *bytes, size_t first, size_t count, bool settles,
    const char *how) {
    for (size_t i = 0; i < count; i++) {
        uint64_t word;
        memcpy(&word, (const char *)bytes + i * WORD_BYTES, WORD_BYTES);
        size_t index = first + i;
        bool is_right = false, is_torn = false;
        uint32_t version = word & VERSION_MASK;
        if (is_word_of(w->seed, f->id, index, word)) {
            if (!owns(f, index)) {
                is_right = true;  // of another process, which knows what it may be
            } else {
                for (int c = 0; c < CANDIDATES && !is_right; c++) is_right = f->model[index].version[c] == version;
            }
        }
        if (!is_right && owns(f, index)) is_right = is_torn = is_of_two_pages(w, f, index, word);
        if (!is_right) {
            const uint32_t *v = f->model[index].version;
            report_loss(w, "%s: %s %s, byte %zu: %016llx (version %u%s), expected version %d|%d|%d|%d, after %s", how,
                class_letters[f->class], f->name, index * WORD_BYTES, (unsigned long long)word, version,
                is_word_of(w->seed, f->id, index, word) ? "" : ", not a word of this file", (int)v[0], (int)v[1],
                (int)v[2], (int)v[3], history_of(f));
            return false;
        }
        // One of two halves may go on to be either.
        if (settles && owns(f, index) && !is_torn) commit(f, index, 1, version);
    }
    w->slot->verified_words += count;
    return true;
}
