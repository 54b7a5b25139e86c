// Only in builds with -fsanitize=thread: makes Swift's Mutex known to ThreadSanitizer.
//
// The inlined parts of `Synchronization.Mutex` are instrumented. The library (LinuxImpl.swift of
// the standard library) takes a contended mutex by spinning and by futex(2), and is not
// instrumented. So ThreadSanitizer would report races on data that the mutex guards. These
// functions replace the library's in the program and tell ThreadSanitizer what happens.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

void __tsan_acquire(void *address);
void __tsan_release(void *address);

#define SWIFT_METHOD __attribute__((swiftcall, visibility("default"), used))
#define SWIFT_SELF __attribute__((swift_context)) void *

static bool futex(void *word, int operation) {
    while (syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, 0, 0) != 0) {
        if (errno == EINTR || (errno == EAGAIN && operation == FUTEX_LOCK_PI)) continue;
        if (operation == FUTEX_TRYLOCK_PI) return false;
        abort();
    }
    return true;
}

// _MutexHandle._lockSlow(_: UInt32)
SWIFT_METHOD void ward_mutex_lock(uint32_t thread, SWIFT_SELF word) __asm__(
    "$s15Synchronization12_MutexHandleV9_lockSlowyys6UInt32VF");
SWIFT_METHOD void ward_mutex_lock(uint32_t thread, SWIFT_SELF word) {
    (void)thread;
    futex(word, FUTEX_LOCK_PI);
    __tsan_acquire(word);
}

// _MutexHandle._tryLockSlow() -> Bool
SWIFT_METHOD bool ward_mutex_try(SWIFT_SELF word) __asm__("$s15Synchronization12_MutexHandleV12_tryLockSlowSbyF");
SWIFT_METHOD bool ward_mutex_try(SWIFT_SELF word) {
    bool taken = futex(word, FUTEX_TRYLOCK_PI);
    if (taken) __tsan_acquire(word);
    return taken;
}

// _MutexHandle._unlockSlow()
SWIFT_METHOD void ward_mutex_unlock(SWIFT_SELF word) __asm__("$s15Synchronization12_MutexHandleV11_unlockSlowyyF");
SWIFT_METHOD void ward_mutex_unlock(SWIFT_SELF word) {
    __tsan_release(word);
    futex(word, FUTEX_UNLOCK_PI);
}
#endif
#endif
