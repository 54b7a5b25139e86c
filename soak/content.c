// The content of the files, and its possible versions.
//
// A file is an array of 64-bit words, because a store of one word through a mapping can't tear. A
// word is 40 bits of hash over (seed, file, index, version) above 24 bits of version. A word that
// was never written, or was cut off, is 0. The model keeps the possible versions of each word: one
// after an acknowledged operation, more after a half-failed one.
#include "soak.h"

#include <string.h>

#define VERSION_BITS 24
// How much newer than a known version a torn word of another process may be.
#define NEWER_VERSIONS 1024
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

// Whether each byte is of one of two versions up to `newest`.
static bool is_torn_word(uint64_t seed, uint32_t file_id, size_t index, uint64_t word, uint32_t newest) {
    bool found[256] = {false};
    for (uint32_t version = 0; version <= newest; version++) {
        uint64_t difference = word ^ word_for(seed, file_id, index, version);
        unsigned same = 0;
        for (int i = 0; i < WORD_BYTES; i++) same |= (difference >> 8 * i & 0xff ? 0u : 1u) << i;
        found[same] = true;
    }
    for (unsigned a = 0; a < 256; a++) {
        for (unsigned b = 0; found[a] && b < a; b++) {
            if (found[b] && (a | b) == 0xff) return true;
        }
    }
    return false;
}

bool is_word_of_other(uint64_t seed, uint32_t file_id, size_t index, uint64_t word, uint32_t known) {
    return is_word_of(seed, file_id, index, word) || is_torn_word(seed, file_id, index, word, known + NEWER_VERSIONS);
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

bool check_words(struct worker *w, struct file *f, const void *bytes, size_t first, size_t count, bool settles,
    const char *how) {
    for (size_t i = 0; i < count; i++) {
        uint64_t word;
        memcpy(&word, (const char *)bytes + i * WORD_BYTES, WORD_BYTES);
        size_t index = first + i;
        bool is_right = false;
        uint32_t version = word & VERSION_MASK;
        if (!owns(f, index)) {
            // Another process's word, and it may be writing. That process knows its versions.
            is_right = is_word_of_other(w->seed, f->id, index, word, f->version);
        } else if (is_word_of(w->seed, f->id, index, word)) {
            for (int c = 0; c < CANDIDATES && !is_right; c++) is_right = f->model[index].version[c] == version;
        }
        if (!is_right) {
            const uint32_t *v = f->model[index].version;
            report_loss(w, "%s: %s %s, byte %zu: %016llx (version %u%s), expected version %d|%d|%d|%d, after %s", how,
                class_letters[f->class], f->name, index * WORD_BYTES, (unsigned long long)word, version,
                is_word_of(w->seed, f->id, index, word) ? "" : ", not a word of this file", (int)v[0], (int)v[1],
                (int)v[2], (int)v[3], history_of(f));
            return false;
        }
        if (settles && owns(f, index)) commit(f, index, 1, version);
    }
    w->slot->verified_words += count;
    return true;
}
