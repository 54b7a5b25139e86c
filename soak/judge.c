// The outcome that an operation must have, by class and state (docs/semantics.md, rows O1 to O12),
// and the counters.
#define _GNU_SOURCE
#include "soak.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

uint32_t current_phase(const struct worker *w) { return __atomic_load_n(&w->shared->phase, __ATOMIC_SEQ_CST); }

enum expectation { MAY, MUST, MUST_NOT };

static enum expectation expected(enum phase_kind kind, const struct attempt *a) {
    if (a->need == NEED_NOTHING || a->class == CLASS_D || kind == PHASE_UNLOCKED) return MUST;
    switch (kind) {
    case PHASE_RACE:
        if (a->class == CLASS_C || a->class == CLASS_CX) return MUST;
        return a->class == CLASS_B && a->need != NEED_OPEN ? MUST : MAY;
    case PHASE_LOCKED:
        if (a->class == CLASS_A) return MUST_NOT;
        return a->class == CLASS_B && a->need == NEED_OPEN ? MUST_NOT : MUST;
    case PHASE_BOOT:
        if (a->class != CLASS_B || a->need == NEED_OPEN) return MUST_NOT;
        if (a->need == NEED_CREATE) return MUST;
        return a->made_in_boot ? MAY : MUST_NOT;
    case PHASE_RACE_BOOT:
        return a->class == CLASS_B && a->need == NEED_CREATE ? MUST : MAY;
    default: return MAY;
    }
}

struct attempt begin_class(struct worker *w, int operation, enum protection_class class, enum need need) {
    __atomic_store_n(&w->slot->current_operation, operation, __ATOMIC_RELAXED);
    return (struct attempt){
        .phase = current_phase(w), .operation = operation, .class = class, .need = need};
}

struct attempt begin(struct worker *w, int operation, struct file *f, enum need need) {
    struct attempt a = begin_class(w, operation, f->class, need);
    a.file = f;
    a.made_in_boot = f->was_made_in_boot;
    return a;
}

enum outcome outcome_of(ssize_t result, int error) {
    if (result >= 0) return OUTCOME_DONE;
    switch (error) {
    case EPERM: return OUTCOME_REFUSED;
    case EFAULT: return OUTCOME_BUS_ERROR;
    case EINTR:
    case EAGAIN: return OUTCOME_UNKNOWN;
    default: return OUTCOME_FAILED;
    }
}

static void add_message(struct worker *w, const char *kind, const char *format, va_list arguments) {
    uint32_t at = __atomic_fetch_add(&w->slot->message_count, 1, __ATOMIC_SEQ_CST);
    if (at >= MAX_MESSAGES) return;
    char *message = w->slot->messages[at];
    int used = snprintf(message, MESSAGE_BYTES, "%s: ", kind);
    vsnprintf(message + used, MESSAGE_BYTES - used, format, arguments);
}

void report_loss(struct worker *w, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    w->slot->losses++;
    add_message(w, "loss", format, arguments);
    va_end(arguments);
}

void report_wrong(struct worker *w, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    w->slot->wrong++;
    add_message(w, "wrong", format, arguments);
    va_end(arguments);
}

static void report_leak(struct worker *w, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add_message(w, "leak", format, arguments);
    va_end(arguments);
}

// If the phase changed in between, only operations without a key, or with class D's, are certain.
static enum expectation expected_after(const struct attempt *a, uint32_t after) {
    if (after == a->phase || a->need == NEED_NOTHING || a->class == CLASS_D) return expected(kind_of(a->phase), a);
    return MAY;
}

bool must_work(const struct worker *w, const struct attempt *a) {
    return expected_after(a, current_phase(w)) == MUST;
}

bool is_echo(struct worker *w, const struct attempt *a, uint32_t accepted_version, const void *words, size_t count) {
    if (expected_after(a, current_phase(w)) != MUST_NOT) return false;
    for (size_t i = 0; i < count; i++) {
        uint64_t word;
        memcpy(&word, (const char *)words + i * WORD_BYTES, WORD_BYTES);
        if ((word & 0xffffff) <= accepted_version) return false;
    }
    w->slot->echoes++;
    return true;
}

static const char *const kinds[] = {"race", "race with a reboot", "unlocked", "locked", "before first unlock", "quiet",
    "end"};

const char *history_of(const struct file *f) {
    static char text[300];
    static const char *const outcomes[] = {"done", "EPERM", "SIGBUS", "?", "-", "failed"};
    size_t used = 0;
    unsigned first = f->history_count > HISTORY ? f->history_count - HISTORY : 0;
    text[0] = 0;
    for (unsigned i = first; i < f->history_count && used < sizeof text; i++) {
        unsigned at = i % HISTORY;
        used += snprintf(text + used, sizeof text - used, "%s%s %s (%s) %u", i > first ? ", " : "",
            operations[f->history[at].operation].name, outcomes[f->history[at].outcome], kinds[f->history[at].phase],
            f->history[at].bytes);
    }
    return text;
}

enum outcome finish(struct worker *w, const struct attempt *a, enum outcome outcome, int error, const char *what) {
    struct slot *slot = w->slot;
    enum phase_kind kind = kind_of(a->phase);
    enum expectation expectation = expected_after(a, current_phase(w));
    slot->heartbeat++;
    if (w->trace >= 0) {
        dprintf(w->trace, "%x %d %s (%s) %s %s %d: %d %s\n", a->phase, (int)getpid(), operations[a->operation].name, what,
            a->file ? a->file->name : "-", class_letters[a->class], a->file ? (int)a->file->bytes : 0, outcome,
            outcome == OUTCOME_DONE ? "" : strerror(error));
    }
    if (a->file) {
        unsigned at = a->file->history_count++ % HISTORY;
        a->file->history[at].operation = a->operation;
        a->file->history[at].phase = kind;
        a->file->history[at].outcome = outcome;
        a->file->history[at].bytes = a->file->bytes;
    }
    switch (outcome) {
    case OUTCOME_DONE:
        slot->done[a->operation]++;
        if (expectation == MUST_NOT) {
            if (operations[a->operation].flags & FLAG_READS) {
                slot->leaks[a->operation]++;
                report_leak(w, "%s (%s) of a class %s file succeeded in phase %s, after %s", operations[a->operation].name,
                    what, class_letters[a->class], kinds[kind], a->file ? history_of(a->file) : "-");
            } else {
                report_wrong(w, "%s (%s) of a class %s file was allowed in phase %s", operations[a->operation].name,
                    what, class_letters[a->class], kinds[kind]);
            }
        }
        break;
    case OUTCOME_REFUSED:
    case OUTCOME_BUS_ERROR:
        if (outcome == OUTCOME_REFUSED) slot->refused[a->operation]++;
        else slot->bus_errors[a->operation]++;
        if (expectation == MUST_NOT) slot->judged_locked[a->operation]++;
        if (expectation == MUST) {
            report_wrong(w, "%s (%s) of a class %s file was refused (%s) in phase %s", operations[a->operation].name,
                what, class_letters[a->class], outcome == OUTCOME_REFUSED ? "EPERM" : "SIGBUS", kinds[kind]);
        }
        break;
    case OUTCOME_UNAVAILABLE: slot->unavailable[a->operation]++; break;
    case OUTCOME_UNKNOWN: break;
    case OUTCOME_FAILED:
        report_wrong(w, "%s (%s) of a class %s file (%s): %s, in phase %s", operations[a->operation].name, what,
            class_letters[a->class], a->file ? a->file->name : "-", strerror(error), kinds[kind]);
        break;
    }
    return outcome;
}

// MARK: SIGBUS

_Thread_local sigjmp_buf fault_return;
_Thread_local volatile sig_atomic_t fault_is_expected;

static void on_fault(int number, siginfo_t *information, void *context) {
    (void)information;
    (void)context;
    if (fault_is_expected) {
        fault_is_expected = 0;
        siglongjmp(fault_return, 1);
    }
    static const char message[] = "adversary: a fault where none was to be expected\n";
    ssize_t ignored = write(2, message, sizeof message - 1);
    (void)ignored;
    signal(number, SIG_DFL);
    raise(number);
}

void install_fault_handler(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGBUS, &action, NULL);
}
