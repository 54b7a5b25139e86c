// One adversary, and its work in each phase.
//
//     adversary SHARED SLOT SEED DIRECTORY [CHILD-SLOT]
//     adversary --describe    the layout of the shared file and the names of operations, as JSON
#define _GNU_SOURCE
#include "soak.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

const struct operation operations[] = {
    {"read", op_read, FLAG_READS, 10},
    {"write", op_write, 0, 10},
    {"append", op_append, FLAG_RESIZES, 6},
    {"direct-read", op_direct_read, FLAG_READS | FLAG_DIRECT, 5},
    {"direct-write", op_direct_write, FLAG_DIRECT, 5},
    {"vector", op_vector, FLAG_READS, 4},
    {"sendfile", op_sendfile, FLAG_READS, 4},
    {"splice-out", op_splice_out, FLAG_READS, 4},
    {"splice-in", op_splice_in, 0, 4},
    {"copy-range", op_copy_range, FLAG_READS, 4},
    {"sync", op_sync, 0, 2},
    {"seek", op_seek, FLAG_READS, 2},
    {"load", op_load, FLAG_READS, 16},
    {"store", op_store, 0, 16},
    {"map", op_map, FLAG_CHANGES, 5},
    {"unmap", op_unmap, FLAG_CHANGES, 2},
    {"remap", op_remap, FLAG_CHANGES, 3},
    {"map-locked", op_map_locked, FLAG_READS, 2},
    {"private-store", op_private_store, FLAG_READS, 3},
    {"map-by-kernel", op_map_by_kernel, FLAG_READS, 5},
    {"resident", op_resident, FLAG_READS, 3},
    {"ring-read", op_ring_read, FLAG_READS, 5},
    {"ring-write", op_ring_write, 0, 5},
    {"truncate", op_truncate, FLAG_RESIZES, 2},
    {"truncate-path", op_truncate_path, FLAG_RESIZES, 1},
    {"allocate", op_allocate, FLAG_RESIZES, 2},
    {"punch", op_punch, FLAG_RESIZES, 2},
    {"open", op_open, FLAG_READS | FLAG_CHANGES, 6},
    {"open-truncating", op_open_truncating, FLAG_CHANGES | FLAG_RESIZES, 2},
    {"reopen-proc", op_reopen_proc, FLAG_READS | FLAG_CHANGES, 4},
    {"close", op_close, FLAG_CHANGES, 4},
    {"pass", op_pass, FLAG_CHANGES, 4},
    {"create", op_create, FLAG_CHANGES | FLAG_FOR_ALL, 3},
    {"create-unnamed", op_create_unnamed, FLAG_CHANGES | FLAG_FOR_ALL, 2},
    {"replace", op_replace, FLAG_CHANGES, 3},
    {"link", op_link, FLAG_CHANGES, 3},
    {"rename", op_rename, FLAG_CHANGES, 2},
    {"unlink", op_unlink, FLAG_CHANGES, 4},
    {"attributes", op_attributes, 0, 3},
    {"class", op_class, FLAG_CHANGES, 4},
    {"list", op_list, FLAG_FOR_ALL, 1},
    {"fork", op_fork, 0, 1},
    {"steal", op_steal, FLAG_READS | FLAG_STEALS | FLAG_FOR_ALL, 0},
    {"steal-memory", op_steal_memory, FLAG_READS | FLAG_STEALS | FLAG_FOR_ALL, 0},
};
const int operation_count = sizeof operations / sizeof operations[0];
_Static_assert(sizeof operations / sizeof operations[0] <= MAX_OPERATIONS, "slots have room for every operation");

int operation_named(const char *name) {
    for (int i = 0; i < operation_count; i++) {
        if (strcmp(operations[i].name, name) == 0) return i;
    }
    abort();
}

// MARK: Operations

static void publish(struct worker *w) {
    memset(w->slot->published, 0xff, sizeof w->slot->published);
    for (int i = 0; i < MAX_PUBLISHED && i < MAX_FILES; i++) {
        struct file *f = &w->files[i];
        struct published *p = &w->slot->published[i];
        int descriptor = f->is_used ? any_descriptor(w, f, O_DIRECT) : -1;
        if (descriptor < 0 || f->bytes < MIN_FILE_BYTES || f->was_made_in_boot) continue;
        struct mapping *m = any_mapping(w, f, MAPPING_SHARED);
        *p = (struct published){.descriptor = descriptor, .file_id = f->id, .protection_class = f->class,
            .words = f->bytes / WORD_BYTES, .address = m ? (uintptr_t)m->address : 0, .bytes = m ? m->bytes : 0,
            .accepted_version = f->accepted_version, .phase = current_phase(w)};
    }
}

static void begin_change(struct worker *w) { __atomic_fetch_add(&w->slot->sequence, 1, __ATOMIC_SEQ_CST); }

static void end_change(struct worker *w) {
    publish(w);
    __atomic_fetch_add(&w->slot->sequence, 1, __ATOMIC_SEQ_CST);
}

static bool may_run(const struct worker *w, const struct operation *o, const struct file *f) {
    if (o->flags & FLAG_STEALS) return w->is_thief && !w->is_child;
    if (w->only_reads && (!(o->flags & FLAG_READS) || o->flags & FLAG_CHANGES)) return false;
    if (w->is_child && o->flags & (FLAG_CHANGES | FLAG_RESIZES | FLAG_FOR_ALL)) return false;
    if (f && f->is_striped && o->flags & (FLAG_RESIZES | FLAG_DIRECT)) return false;
    return f || o->flags & FLAG_FOR_ALL;
}

static void run_operation(struct worker *w, int number, struct file *f) {
    const struct operation *o = &operations[number];
    if (!may_run(w, o, f)) return;
    bool changes = o->flags & (FLAG_CHANGES | FLAG_RESIZES) && !w->is_child;
    if (changes) begin_change(w);
    o->run(w, f, number);
    if (changes) end_change(w);
    __atomic_fetch_add(&w->slot->heartbeat, 1, __ATOMIC_RELAXED);
    if (w->is_child && !w->only_reads) w->slot->file_version = w->files[0].version;
}

static int choose_operation(struct worker *w) {
    static unsigned total;
    if (w->is_thief && !w->is_child && below(w, 4)) return operation_named(below(w, 2) ? "steal" : "steal-memory");
    if (!total) {
        for (int i = 0; i < operation_count; i++) total += operations[i].weight;
    }
    size_t at = below(w, total);
    int i = 0;
    while (at >= operations[i].weight) at -= operations[i++].weight;
    return i;
}

static struct file *choose_file(struct worker *w) {
    struct file *used[MAX_FILES];
    int count = 0;
    for (int i = 0; i < MAX_FILES; i++) {
        if (w->files[i].is_used) used[count++] = &w->files[i];
    }
    return count ? used[below(w, count)] : NULL;
}

void run_operations(struct worker *w, uint32_t while_phase, unsigned count) {
    for (unsigned i = 0; i < count && current_phase(w) == while_phase; i++) {
        run_operation(w, choose_operation(w), choose_file(w));
    }
}

// Tries, after a lock, each operation that could read a byte, on every file. False where the phase
// changed.
static bool attack(struct worker *w, uint32_t phase) {
    if (!w->is_child) {
        begin_change(w);
        end_change(w);
    }
    for (int i = 0; i < MAX_FILES; i++) {
        struct file *f = &w->files[i];
        for (int o = 0; o < operation_count; o++) {
            if (!f->is_used || !(operations[o].flags & FLAG_READS)) continue;
            if (current_phase(w) != phase) return false;
            run_operation(w, o, f);
        }
    }
    run_operations(w, phase, 20);
    return current_phase(w) == phase;
}

// MARK: Verification

static bool verify_mapping(struct worker *w, struct file *f, struct mapping *m, const struct attempt *a) {
    for (volatile size_t index = 0; index < f->bytes / WORD_BYTES && index < m->bytes / WORD_BYTES; index++) {
        if (m->kind == MAPPING_PRIVATE && m->owner[index * WORD_BYTES / PAGE] != PAGE_CACHED) continue;
        if (TOUCHES) {
            uint64_t word = ((volatile uint64_t *)m->address)[index];
            touched();
            if (!check_words(w, f, &word, index, 1, false, "mapping")) return false;
        } else {
            finish(w, a, OUTCOME_BUS_ERROR, 0, "mapping while unlocked");
            return false;
        }
    }
    return true;
}

static void verify_file(struct worker *w, struct file *f) {
    int operation = operation_named("read");
    if (any_descriptor(w, f, O_DIRECT) < 0) {
        if (!f->has_name) {
            drop_file(w, f);
            return;
        }
        if (open_again(w, f, operation_named("open"), O_RDWR) < 0) return;
    }
    int descriptor = any_descriptor(w, f, O_DIRECT);
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    struct stat status;
    if (fstat(descriptor, &status) == 0 && (size_t)status.st_size != f->bytes) {
        report_loss(w, "%s %s is %zu bytes long instead of %zu after %s", class_letters[f->class], f->name,
            (size_t)status.st_size, f->bytes, history_of(f));
        f->bytes = status.st_size;
    }
    ssize_t got = pread(descriptor, w->buffer, f->bytes, 0);
    int error = errno;
    if (finish(w, &a, outcome_of(got, error), error, "verification") != OUTCOME_DONE) return;
    if ((size_t)got != f->bytes) {
        if (kind_of(a.phase) == PHASE_UNLOCKED && current_phase(w) == a.phase) {
            report_loss(w, "%s: %zd of %zu bytes", f->name, got, f->bytes);
        }
        return;
    }
    bool is_whole = check_words(w, f, w->buffer, 0, got / WORD_BYTES, true, "verification");
    // Takes the content as it is, so that each damage is reported once.
    if (!is_whole) {
        for (size_t i = 0; i < (size_t)got / WORD_BYTES; i++) {
            uint64_t word = ((uint64_t *)w->buffer)[i];
            if (owns(f, i)) commit(f, i, 1, word & 0xffffff);
        }
        return;
    }
    for (int i = 0; i < MAX_MAPPINGS; i++) {
        struct mapping *m = &f->mappings[i];
        if (m->kind != MAPPING_NONE && !verify_mapping(w, f, m, &a)) return;
    }
    w->slot->verified_files++;
    f->was_made_in_boot = false;
}

// MARK: Life

static void make_directories(struct worker *w) {
    mkdir(w->directory, 0700);
    for (int class = 0; class < CLASS_COUNT; class++) {
        char path[700];
        snprintf(path, sizeof path, "%s/%s", w->directory, class_letters[class]);
        if (mkdir(path, 0700) && errno != EEXIST) report_wrong(w, "mkdir %s: %s", path, strerror(errno));
        if (setxattr(path, "user.ward.class", class_letters[class], strlen(class_letters[class]), 0)) {
            report_wrong(w, "class of %s: %s", path, strerror(errno));
        }
    }
}

static void enter_directory(struct worker *w) {
    // Every third adversary has its working directory in the volume.
    if (w->index % 3 == 0 && chdir(w->directory) == 0) w->prefix[0] = 0;
    else snprintf(w->prefix, sizeof w->prefix, "%s/", w->directory);
}

static void open_scratch(struct worker *w) {
    for (int class = 0; class < CLASS_COUNT; class++) {
        if (w->scratch[class] >= 0) continue;
        char path[700];
        snprintf(path, sizeof path, "%s%s/scratch", w->prefix, class_letters[class]);
        int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        // The write gives the empty file a key, which class B can do in every state.
        if (descriptor >= 0 && pwrite(descriptor, w->buffer, PAGE, 0) != PAGE) {
            close(descriptor);
            descriptor = -1;
        }
        w->scratch[class] = descriptor;
    }
}

static void run_child(struct worker *w);

// Starts a child. Both processes write one file through one mapping, each its own words.
static void start_child(struct worker *w) {
    struct file *f = &w->files[0];
    if (!f->is_used) {
        f = make_file(w, w->index % 2 ? CLASS_A : CLASS_B, MAX_FILE_BYTES);
        if (!f || f != w->files) return;
        f->is_striped = true;
        f->stripes = 2;
    }
    if (any_descriptor(w, f, 0) < 0 && open_again(w, f, operation_named("open"), O_RDWR) < 0) return;
    if (!any_mapping(w, f, MAPPING_SHARED)) {
        void *address = mmap(NULL, f->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, any_descriptor(w, f, 0), 0);
        if (address == MAP_FAILED) return;
        unmap(&f->mappings[0]);  // of another kind
        f->mappings[0] = (struct mapping){.kind = MAPPING_SHARED, .address = address, .bytes = f->bytes};
    }
    w->child = fork();
    if (w->child == 0) run_child(w);
}

static void run_child(struct worker *w) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct slot *slot = &w->shared->slots[w->child_slot];
    uint32_t version = slot->file_version;
    w->slot = slot;
    w->is_child = true;
    w->random ^= 0x5eed;
    struct file *f = &w->files[0];
    f->stripe = 1;
    if (version > f->version) f->version = version;
    // The child keeps only the shared file.
    for (int i = 1; i < MAX_FILES; i++) {
        if (w->files[i].is_used) close_file(w, &w->files[i]);
        w->files[i].is_used = false;
    }
    // The child needs its own pipe: the parent's pipe holds the parent's bytes.
    if (pipe2(w->pipe, O_CLOEXEC | O_NONBLOCK)) _exit(1);
    __atomic_store_n(&slot->pid, getpid(), __ATOMIC_RELEASE);
    while (true) {
        uint32_t phase = current_phase(w);
        switch (kind_of(phase)) {
        case PHASE_QUIT:
        case PHASE_QUIESCE:
            __atomic_store_n(&slot->pid, 0, __ATOMIC_RELEASE);
            _exit(0);
        case PHASE_UNLOCKED:
            if (slot->acknowledged != phase) verify_file(w, f);
            break;
        case PHASE_LOCKED:
        case PHASE_BOOT:
            if (slot->acknowledged != phase) attack(w, phase);
            break;
        default: break;
        }
        if (current_phase(w) == phase) slot->acknowledged = phase;
        run_operations(w, phase, 20);
    }
}

static void end_child(struct worker *w) {
    if (w->child > 0) {
        while (waitpid(w->child, NULL, 0) < 0 && errno == EINTR) {}
    }
    w->child = 0;
}

// Closes everything that holds the mount.
static void leave(struct worker *w) {
    begin_change(w);
    end_child(w);
    if (w->in_flight_file != -1) op_pass(w, &w->files[0], operation_named("pass"));
    for (int i = 0; i < MAX_FILES; i++) {
        struct file *f = &w->files[i];
        if (!f->is_used) continue;
        close_file(w, f);
        if (!f->has_name) drop_file(w, f);
    }
    for (int class = 0; class < CLASS_COUNT; class++) {
        if (w->scratch[class] >= 0) close(w->scratch[class]);
        w->scratch[class] = -1;
    }
    if (chdir("/")) abort();
    end_change(w);
}

static void verify_everything(struct worker *w, uint32_t phase) {
    open_scratch(w);
    if (w->child_slot >= 0 && w->child == 0) {
        begin_change(w);
        start_child(w);
        end_change(w);
    }
    int used = 0;
    for (int i = 0; i < MAX_FILES && current_phase(w) == phase; i++) {
        struct file *f = &w->files[i];
        if (!f->is_used) continue;
        begin_change(w);
        verify_file(w, f);
        // Drops files without a name at random, so that there is room for files with one.
        if (f->is_used && !f->has_name && below(w, 2)) drop_file(w, f);
        end_change(w);
        used += f->is_used;
    }
    // Makes sure that there are always files of class A to attack.
    static const enum protection_class wanted[] = {CLASS_A, CLASS_B, CLASS_A, CLASS_C, CLASS_D, CLASS_A, CLASS_CX};
    for (; used < 7 && current_phase(w) == phase; used++) {
        begin_change(w);
        struct file *f = make_file(w, wanted[used], 2 * PAGE + below(w, 20) * PAGE);
        if (f) {
            op_map(w, f, operation_named("map"));
            op_open(w, f, operation_named("open"));
        }
        end_change(w);
    }
}

static void run(struct worker *w) {
    bool is_made = false;
    while (true) {
        uint32_t phase = current_phase(w);
        switch (kind_of(phase)) {
        case PHASE_QUIT:
            leave(w);
            return;
        case PHASE_QUIESCE:
            if (w->slot->acknowledged != phase) leave(w);
            w->slot->acknowledged = phase;
            __atomic_fetch_add(&w->slot->heartbeat, 1, __ATOMIC_RELAXED);
            while (current_phase(w) == phase) usleep(500);
            if (kind_of(current_phase(w)) != PHASE_QUIT) enter_directory(w);
            continue;
        case PHASE_UNLOCKED:
            if (!is_made) {
                make_directories(w);
                enter_directory(w);
                is_made = true;
            }
            if (w->slot->acknowledged != phase) verify_everything(w, phase);
            break;
        case PHASE_LOCKED:
        case PHASE_BOOT:
            if (is_made && w->slot->acknowledged != phase) attack(w, phase);
            break;
        default: break;
        }
        if (current_phase(w) == phase) w->slot->acknowledged = phase;
        if (is_made) run_operations(w, phase, 20);
        else usleep(500);
        __atomic_fetch_add(&w->slot->heartbeat, 1, __ATOMIC_RELAXED);
    }
}

static void describe(void) {
#define FIELD(name) printf(",\"%s\":%zu", #name, offsetof(struct slot, name))
    printf("{\"magic\":%u,\"bytes\":%zu,\"maxSlots\":%d,\"slotBytes\":%zu,\"slots\":%zu,\"phase\":%zu,\"slotCount\":%zu",
        MAGIC, sizeof(struct shared), MAX_SLOTS, sizeof(struct slot), offsetof(struct shared, slots),
        offsetof(struct shared, phase), offsetof(struct shared, slot_count));
    printf(",\"messages\":[%d,%d],\"field\":{\"end\":0", MAX_MESSAGES, MESSAGE_BYTES);
    FIELD(pid);
    FIELD(acknowledged);
    FIELD(current_operation);
    FIELD(heartbeat);
    FIELD(is_populating);
    FIELD(done);
    FIELD(refused);
    FIELD(bus_errors);
    FIELD(judged_locked);
    FIELD(leaks);
    FIELD(unavailable);
    FIELD(echoes);
    FIELD(losses);
    FIELD(wrong);
    FIELD(verified_files);
    FIELD(verified_words);
    FIELD(message_count);
    FIELD(messages);
    printf("},\"operations\":[");
    for (int i = 0; i < operation_count; i++) {
        printf("%s{\"name\":\"%s\",\"reads\":%s}", i ? "," : "", operations[i].name,
            operations[i].flags & FLAG_READS ? "true" : "false");
    }
    printf("]}\n");
}

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "--describe") == 0) {
        describe();
        return 0;
    }
    if (count < 5) {
        fprintf(stderr, "usage: adversary SHARED SLOT SEED DIRECTORY [CHILD-SLOT], or adversary --describe\n");
        return 64;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN);  // the driver ends this process in order
    signal(SIGPIPE, SIG_IGN);
    install_fault_handler();
    struct worker *w = calloc(1, sizeof *w);
    int descriptor = open(arguments[1], O_RDWR | O_CLOEXEC);
    w->shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (descriptor < 0 || w->shared == MAP_FAILED || w->shared->magic != MAGIC) {
        fprintf(stderr, "adversary: %s is not what was to be shared\n", arguments[1]);
        return 66;
    }
    w->index = atoi(arguments[2]);
    w->slot = &w->shared->slots[w->index];
    w->seed = strtoull(arguments[3], NULL, 10);
    w->random = w->seed * 1000003 + w->index;
    snprintf(w->directory, sizeof w->directory, "%s/w%u", arguments[4], w->index);
    w->child_slot = count > 5 ? atoi(arguments[5]) : -1;
    w->is_thief = w->index % 8 == 7;
    w->is_plain = getenv("SOAK_PLAIN") != NULL;
    w->in_flight_file = -1;
    for (int class = 0; class < CLASS_COUNT; class++) w->scratch[class] = -1;
    memset(w->slot->published, 0xff, sizeof w->slot->published);
    size_t model_bytes = MAX_WORDS * sizeof(struct candidates);
    for (int i = 0; i < MAX_FILES; i++) {
        w->files[i].model = mmap(NULL, model_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    }
    w->buffer = mmap(NULL, MAX_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, w->pair) || pipe2(w->pipe, O_CLOEXEC | O_NONBLOCK)) {
        perror("adversary");
        return 71;
    }
    w->trace = -1;
    const char *trace = getenv("SOAK_TRACE");
    if (trace) {
        char path[600];
        snprintf(path, sizeof path, "%s.%u", trace, w->index);
        w->trace = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    __atomic_store_n(&w->slot->pid, getpid(), __ATOMIC_RELEASE);
    run(w);
    return 0;
}
