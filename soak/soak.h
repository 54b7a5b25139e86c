// The adversaries of `make soak`: programs that use a ward volume in every way that the kernel
// offers, while it is locked and unlocked. They judge each answer by docs/semantics.md.
//
// The driver `soak/run` mounts a volume and starts one `adversary` process for each slot. Both
// sides share one file outside the volume (`struct shared`): the driver writes the phase, the
// adversaries write counters and findings. Each adversary has its own files and a model of the
// acknowledged content (content.c). It judges an operation strictly only if the phase was the same
// before and after it (judge.c), because then the right outcome is certain.
#ifndef SOAK_H
#define SOAK_H

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// MARK: What driver and adversaries share

// The driver checks the state before it writes the phase, and writes the next phase before it asks
// for another state. The word is `epoch << 4 | kind`, so that no two phases are equal.
enum phase_kind {
    PHASE_RACE,       // a lock or unlock runs, or may run: class A and new opens of B may be refused
    PHASE_RACE_BOOT,  // the same with a reboot: only class D is certain
    PHASE_UNLOCKED,   // S2: every operation must work
    PHASE_LOCKED,     // S4
    PHASE_BOOT,       // S1
    PHASE_QUIESCE,    // all files must be closed: the volume is unmounted and mounted again
    PHASE_QUIT,
};

#define MAGIC 0x4b414f53u
#define MAX_SLOTS 128
#define MAX_OPERATIONS 64
#define MAX_MESSAGES 6
#define MESSAGE_BYTES 500
#define MAX_PUBLISHED 8

// The descriptor and the shared mapping of a file that an adversary offers to thieves.
struct published {
    int32_t descriptor;
    uint32_t file_id;
    uint32_t protection_class;
    uint32_t words;
    uint64_t address;
    uint64_t bytes;
    uint32_t accepted_version;
    uint32_t phase;  // when this was written
};

struct slot {
    uint32_t pid;
    uint32_t is_child;
    uint32_t acknowledged;  // the last phase that was verified, attacked or made quiet completely
    uint32_t current_operation;
    uint64_t heartbeat;
    uint64_t done[MAX_OPERATIONS];
    uint64_t refused[MAX_OPERATIONS];  // by EPERM
    uint64_t bus_errors[MAX_OPERATIONS];
    uint64_t judged_locked[MAX_OPERATIONS];  // refusals that semantics.md requires
    uint64_t leaks[MAX_OPERATIONS];
    uint64_t unavailable[MAX_OPERATIONS];  // the kernel does not offer the operation here
    uint64_t echoes;  // reads of data of refused writes (judge.c)
    uint64_t losses;
    uint64_t wrong;
    uint64_t verified_files;
    uint64_t verified_words;
    uint32_t message_count;
    uint32_t sequence;  // odd while `published` changes
    uint32_t file_version;  // of a child: the last version, for the next child
    uint32_t is_populating;  // in mlock(2) or mmap(MAP_POPULATE), which may block until the unlock
    struct published published[MAX_PUBLISHED];
    char messages[MAX_MESSAGES][MESSAGE_BYTES];
};

struct shared {
    uint32_t magic;
    uint32_t phase;
    uint32_t slot_count;
    uint32_t reserved;
    struct slot slots[MAX_SLOTS];
};

// MARK: Files

enum protection_class { CLASS_A, CLASS_B, CLASS_C, CLASS_D, CLASS_CX, CLASS_COUNT };

#define PAGE 4096
#define WORD_BYTES 8
#define MAX_FILE_BYTES (96 * 1024)
#define MAX_WORDS (MAX_FILE_BYTES / WORD_BYTES)
#define MIN_FILE_BYTES PAGE
#define CANDIDATES 4
#define NO_VERSION 0xffffffffu
#define MAX_DESCRIPTORS 4
#define MAX_MAPPINGS 3
#define MAX_FILES 10
#define HISTORY 8
// In a file that several processes write, the processes own alternating stripes of this many words.
#define STRIPE_WORDS 8

enum mapping_kind { MAPPING_NONE, MAPPING_SHARED, MAPPING_READ_ONLY, MAPPING_PRIVATE };

// The owner of a page of a private mapping.
enum { PAGE_CACHED, PAGE_OWN, PAGE_UNKNOWN };

struct mapping {
    enum mapping_kind kind;
    unsigned char *address;
    size_t bytes;
    uint8_t owner[MAX_FILE_BYTES / PAGE];
};

struct candidates {
    uint32_t version[CANDIDATES];
};

struct file {
    bool is_used;
    bool has_name;
    bool has_second_name;
    bool is_mapped_dirty;   // changed through a mapping since the last fsync
    bool was_made_in_boot;  // class B: usable before the next unlock, too
    bool is_weaker;         // a change of its class was refused: close(2) may report it
    bool is_striped;        // several processes write it: its size does not change, and no O_DIRECT
    uint32_t stripes, stripe;
    uint32_t id;
    uint32_t version;           // the newest version that was tried
    uint32_t accepted_version;  // the newest version of which any word was acknowledged
    enum protection_class class;
    size_t bytes;
    char name[96], second_name[96];
    int descriptors[MAX_DESCRIPTORS];
    int descriptor_flags[MAX_DESCRIPTORS];
    struct mapping mappings[MAX_MAPPINGS];
    struct candidates *model;  // MAX_WORDS entries, shared with children
    // The last operations, for messages: operation, phase, outcome, size afterwards.
    struct { uint8_t operation, phase, outcome; uint32_t bytes; } history[HISTORY];
    unsigned history_count;
};

struct worker {
    struct shared *shared;
    struct slot *slot;
    unsigned index;
    uint64_t random;
    uint64_t seed;
    char directory[512];
    char prefix[600];  // "" where the working directory is `directory`
    uint32_t files_made;
    struct file files[MAX_FILES];
    int scratch[CLASS_COUNT];
    int pair[2];
    int in_flight_file;  // whose descriptor is in the socket; -1: none, -2: a file that is gone
    int in_flight_flags;
    int pipe[2];
    pid_t child;
    int child_slot;  // -1: none
    bool is_thief;
    bool is_plain;  // SOAK_PLAIN: on a plain directory, where no operation is refused
    bool is_child;
    bool only_reads;
    int trace;  // descriptor for a line about each operation (SOAK_TRACE); -1: none
    unsigned char *buffer;  // MAX_FILE_BYTES, page-aligned
};

// MARK: judge.c

enum need {
    NEED_NOTHING,  // names and attributes: always works
    NEED_CONTENT,  // content of an open file
    NEED_OPEN,     // open of an existing file
    NEED_CREATE,
};

enum outcome {
    OUTCOME_DONE,
    OUTCOME_REFUSED,      // EPERM
    OUTCOME_BUS_ERROR,    // SIGBUS, or EFAULT of a system call that touched the mapping
    OUTCOME_UNKNOWN,      // interrupted: it may have happened or not
    OUTCOME_UNAVAILABLE,  // the kernel or this user's limits do not offer it
    OUTCOME_FAILED,       // an error without an explanation
};

struct attempt {
    uint32_t phase;
    int operation;
    enum protection_class class;
    enum need need;
    bool made_in_boot;
    struct file *file;  // NULL: no file of the model
};

uint32_t current_phase(const struct worker *w);
static inline enum phase_kind kind_of(uint32_t phase) { return phase & 15; }
struct attempt begin(struct worker *w, int operation, struct file *f, enum need need);
struct attempt begin_class(struct worker *w, int operation, enum protection_class class, enum need need);
// Judges and counts an attempt. `what` is for the message.
enum outcome finish(struct worker *w, const struct attempt *a, enum outcome outcome, int error, const char *what);
// Whether the attempt would have to succeed, judged now.
bool must_work(const struct worker *w, const struct attempt *a);
// Whether words that were read while locked are only data of refused writes. The kernel copies the
// data of a write(2) into its page before it asks the daemon. Another process that reads the page
// at that moment sees data that a program tried to write, never content of the file. The daemon has
// such pages dropped.
bool is_echo(struct worker *w, const struct attempt *a, uint32_t accepted_version, const void *words, size_t count);
// The outcome of a system call that returned `result`.
enum outcome outcome_of(ssize_t result, int error);
void report_loss(struct worker *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void report_wrong(struct worker *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
// The last operations on a file, in words.
const char *history_of(const struct file *f);
void install_fault_handler(void);

extern _Thread_local sigjmp_buf fault_return;
extern _Thread_local volatile sig_atomic_t fault_is_expected;
// `if (TOUCHES) { touch } else { after SIGBUS }`, then `touched()`. Locals that change in between
// must be volatile.
#define TOUCHES (fault_is_expected = 1, sigsetjmp(fault_return, 0) == 0)
static inline void touched(void) { fault_is_expected = 0; }

// MARK: content.c

uint64_t word_for(uint64_t seed, uint32_t file_id, size_t index, uint32_t version);
bool is_word_of(uint64_t seed, uint32_t file_id, size_t index, uint64_t word);
// Whether this is a word of another process's file, or torn: each byte is of one of two versions.
// The kernel reads cached pages without the lock of writes, punches and truncations, and neither
// copies nor clears memory word by word (`filemap_read`, mm/filemap.c). `known` is a version that
// the process had; newer ones may follow.
bool is_word_of_other(uint64_t seed, uint32_t file_id, size_t index, uint64_t word, uint32_t known);
// Fills `words` with `version` for `count` words from `first`.
void fill_words(struct worker *w, struct file *f, uint64_t *words, size_t first, size_t count, uint32_t version);
bool has_room(const struct file *f, size_t first, size_t count);
void commit(struct file *f, size_t first, size_t count, uint32_t version);
void maybe(struct file *f, size_t first, size_t count, uint32_t version);
// Compares with the model. Returns false, and reports a loss, where a word has none of its possible
// versions. With `settles`, the versions found become the only possible ones.
bool check_words(struct worker *w, struct file *f, const void *words, size_t first, size_t count, bool settles,
    const char *how);
bool owns(const struct file *f, size_t index);
uint64_t next_random(struct worker *w);
static inline size_t below(struct worker *w, size_t bound) { return bound ? next_random(w) % bound : 0; }

// MARK: files.c

extern const char *const class_letters[CLASS_COUNT];
extern const char *const class_names[CLASS_COUNT];  // the values of `user.ward.class`
void path_of(const struct worker *w, const struct file *f, char *out, size_t bytes);
// The path of the hard link, in the directory of class C.
void second_path_of(const struct worker *w, const struct file *f, char *out, size_t bytes);
struct file *free_file(struct worker *w);
// Empties the record of an unused file.
void clear_file(struct worker *w, struct file *f, enum protection_class class);
// Makes and fills a file; NULL where it was refused.
struct file *make_file(struct worker *w, enum protection_class class, size_t bytes);
bool write_words(struct worker *w, struct file *f, int operation, size_t first, size_t count);
int open_again(struct worker *w, struct file *f, int operation, int flags);
int any_descriptor(struct worker *w, struct file *f, int without_flags);
int add_descriptor(struct file *f, int descriptor, int flags);
struct mapping *any_mapping(struct worker *w, struct file *f, enum mapping_kind kind);
void unmap(struct mapping *m);
void close_file(struct worker *w, struct file *f);
void drop_file(struct worker *w, struct file *f);
// Takes the size after a failed change from the kernel. It must be the old or the wanted size.
void settle_size(struct worker *w, struct file *f, size_t wanted);
void set_size(struct file *f, size_t bytes);

// MARK: Operations

#define FLAG_READS 1       // success on a class A file while locked is a leak
#define FLAG_CHANGES 2     // of descriptors, mappings, names or the class: thieves must not look
#define FLAG_RESIZES 4     // never on a striped file
#define FLAG_FOR_ALL 8     // needs no file
#define FLAG_DIRECT 16     // O_DIRECT: never on a striped file
#define FLAG_STEALS 32     // only for thieves, which do it most of the time

struct operation {
    const char *name;
    void (*run)(struct worker *w, struct file *f, int operation);
    unsigned flags;
    unsigned weight;
};

extern const struct operation operations[];
extern const int operation_count;
int operation_named(const char *name);

#define OPERATION(name) void name(struct worker *w, struct file *f, int operation)
OPERATION(op_read);
OPERATION(op_write);
OPERATION(op_append);
OPERATION(op_direct_read);
OPERATION(op_direct_write);
OPERATION(op_vector);
OPERATION(op_sendfile);
OPERATION(op_splice_out);
OPERATION(op_splice_in);
OPERATION(op_copy_range);
OPERATION(op_sync);
OPERATION(op_seek);
OPERATION(op_load);
OPERATION(op_store);
OPERATION(op_map);
OPERATION(op_unmap);
OPERATION(op_remap);
OPERATION(op_map_locked);
OPERATION(op_private_store);
OPERATION(op_map_by_kernel);
OPERATION(op_resident);
OPERATION(op_ring_read);
OPERATION(op_ring_write);
OPERATION(op_truncate);
OPERATION(op_truncate_path);
OPERATION(op_allocate);
OPERATION(op_punch);
OPERATION(op_open);
OPERATION(op_open_truncating);
OPERATION(op_reopen_proc);
OPERATION(op_close);
OPERATION(op_pass);
OPERATION(op_create);
OPERATION(op_create_unnamed);
OPERATION(op_replace);
OPERATION(op_link);
OPERATION(op_rename);
OPERATION(op_unlink);
OPERATION(op_attributes);
OPERATION(op_class);
OPERATION(op_list);
OPERATION(op_fork);
OPERATION(op_steal);
OPERATION(op_steal_memory);

// MARK: main.c

void run_operations(struct worker *w, uint32_t while_phase, unsigned count);

#endif
