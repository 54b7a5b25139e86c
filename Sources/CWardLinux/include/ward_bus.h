/* Signals of the system bus about sleep, shutdown and locked screens. They are those of
 * org.freedesktop.login1, which systemd-logind and elogind speak (org.freedesktop.login1(5)).
 *
 * The library libsystemd is loaded when a bus is opened, dlopen(3), so ward runs where it is not
 * installed. The functions of sd-bus(3) are variadic, so the calls are here; Swift decides what
 * follows from a signal.
 *
 * A bus belongs to one thread. Functions that return int return -errno where they fail. */
#ifndef WARD_BUS_H
#define WARD_BUS_H

#include <stddef.h>
#include <stdint.h>

typedef struct ward_bus ward_bus;

enum ward_bus_signal_kind {
    WARD_BUS_OTHER = 0,
    /* `flag`: true before sleep or shutdown, false afterwards. */
    WARD_BUS_SLEEP = 1,
    WARD_BUS_SHUTDOWN = 2,
    /* A session was asked to lock its screen; `path` is the session's. */
    WARD_BUS_SESSION_LOCK = 3,
    /* A screen locker says that a session's screen is locked (`flag`) or not; `path` is the
     * session's. */
    WARD_BUS_LOCKED_HINT = 4,
    /* A session has begun, or a session or a user is gone; the signal does not say whose. */
    WARD_BUS_SESSIONS = 5,
    /* The login manager began or ended; `flag`: whether there is one now. */
    WARD_BUS_MANAGER = 6,
};

typedef struct ward_bus_signal {
    int kind;
    int flag;
    char path[256];
} ward_bus_signal;

/* Connects to the system bus, sd_bus_open_system(3), and asks for logind's signals; with
 * `sessions` also for those of sessions. Errors: -ELIBACC without libsystemd, -ENXIO without a
 * login manager on the bus, else why the bus can't be reached. */
int ward_bus_open(ward_bus **out, int sessions);
void ward_bus_close(ward_bus *bus);
/* The descriptor, the events and the longest time for poll(2): milliseconds, -1 for ever. */
int ward_bus_descriptor(ward_bus *bus);
int ward_bus_events(ward_bus *bus);
int ward_bus_timeout_milliseconds(ward_bus *bus);
/* 1: took a message off the bus and described it in `out`; 0: there is none. */
int ward_bus_next(ward_bus *bus, ward_bus_signal *out);
/* Takes a delay lock (Inhibit) and returns its descriptor. Sleep and shutdown wait for some
 * seconds until it is closed. */
int ward_bus_inhibit(ward_bus *bus, const char *what, const char *who, const char *why);
/* The user of a session, by its object path. */
int ward_bus_session_user(ward_bus *bus, const char *path, uint32_t *uid);

/* The property State of a user: online or active while one of their sessions is, else closing,
 * lingering or offline. -ENXIO for a user that the login manager does not know. */
int ward_bus_user_state(ward_bus *bus, uint32_t uid, char *state, size_t capacity);

#endif
