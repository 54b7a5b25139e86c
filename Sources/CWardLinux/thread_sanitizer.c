// Only in builds with -fsanitize=thread: what ThreadSanitizer has to be told of Swift's Mutex.
//
// `Synchronization.Mutex` hands a contended lock over through the kernel (FUTEX_LOCK_PI), by libc's syscall(2) from a
// library that is not instrumented. ThreadSanitizer sees neither side and takes what the mutex guards for a race. This
// `syscall` takes the place of libc's in the program and says what happens.
#define _GNU_SOURCE
#if defined(__has_feature)
#if __has_feature(thread_sanitizer) && defined(__x86_64__)
#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/syscall.h>

void __tsan_acquire(void *address);
void __tsan_release(void *address);

__attribute__((visibility("default"))) long syscall(long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    long a[6];
    for (int i = 0; i < 6; i++) a[i] = va_arg(arguments, long);
    va_end(arguments);
    long command = a[1] & FUTEX_CMD_MASK, result;
    if (number == SYS_futex && command == FUTEX_UNLOCK_PI) __tsan_release((void *)a[0]);
    register long r10 __asm__("r10") = a[3];
    register long r8 __asm__("r8") = a[4];
    register long r9 __asm__("r9") = a[5];
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    if (number == SYS_futex && (command == FUTEX_LOCK_PI || command == FUTEX_TRYLOCK_PI)) __tsan_acquire((void *)a[0]);
    return result;
}
#endif
#endif
