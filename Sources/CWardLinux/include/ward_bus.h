/* What the system bus says about sleep, shutdown and locked screens: org.freedesktop.login1,
 * which systemd-logind and elogind speak (org.freedesktop.login1(5)). libsystemd is loaded when
 * a bus is opened, dlopen(3): ward runs where it is not installed. sd-bus(3) is variadic, so the
 * calls are here; what follows from a signal is decided in Swift.
 *
 * A bus belongs to one thread. Functions that return int return -errno where they fail. */
#ifndef WARD_BUS_H
#define WARD_BUS_H

#include <stddef.h>
#include <stdint.h>

typedef struct ward_bus ward_bus;

enum ward_bus_signal_kind {
    WARD_BUS_OTHER = 0,
    /* `flag`: true before it, false afterwards. */
    WARD_BUS_SLEEP = 1,
    WARD_BUS_SHUTDOWN = 2,
    /* A session was asked to lock its screen; `path` is the session's. */
    WARD_BUS_SESSION_LOCK = 3,
    /* A session's screen is locked, says its screen locker; `path` is the session's. */
    WARD_BUS_LOCKED_HINT = 4,
    /* A session has begun, or a session or a user is gone; whose has to be asked. */
    WARD_BUS_SESSIONS = 5,
    /* The login manager itself; `flag`: whether there is one now. */
    WARD_BUS_MANAGER = 6,
};

typedef struct ward_bus_signal {
    int kind;
    int flag;
    char path[256];
} ward_bus_signal;

/* Connects to the system bus, sd_bus_open_system(3), and asks for logind's signals; with
 * `sessions` those of sessions too. -ELIBACC without libsystemd, -ENXIO without a login manager
 * on the bus, else what the bus can't be reached for. */
int ward_bus_open(ward_bus **out, int sessions);
void ward_bus_close(ward_bus *bus);
/* What poll(2) is to wait for, and for how long: milliseconds, -1 for ever. */
int ward_bus_descriptor(ward_bus *bus);
int ward_bus_events(ward_bus *bus);
int ward_bus_timeout_milliseconds(ward_bus *bus);
/* 1: something was taken off the bus, described in `out`; 0: nothing left to take. */
int ward_bus_next(ward_bus *bus, ward_bus_signal *out);
/* The descriptor of a delay lock (Inhibit); sleep and shutdown wait until it is closed, for some
 * seconds. */
int ward_bus_inhibit(ward_bus *bus, const char *what, const char *who, const char *why);
/* The user of a session, by its object path. */
int ward_bus_session_user(ward_bus *bus, const char *path, uint32_t *uid);

/* The property State of a user: online and active while one of their sessions is; closing,
 * lingering or offline else. A user that the login manager does not know: -ENXIO. */
int ward_bus_user_state(ward_bus *bus, uint32_t uid, char *state, size_t capacity);

#endif
