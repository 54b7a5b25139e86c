#include "ward_bus.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

static const char LOGIND[] = "org.freedesktop.login1";
static const char MANAGER[] = "org.freedesktop.login1.Manager";
static const char SESSION[] = "org.freedesktop.login1.Session";

/* From systemd/sd-bus.h, whose ABI is stable. */
typedef struct sd_bus sd_bus;
typedef struct sd_bus_message sd_bus_message;
typedef struct sd_bus_error {
    const char *name;
    const char *message;
    int need_free;
} sd_bus_error;

struct ward_bus {
    void *library;
    sd_bus *bus;
    int (*open_system)(sd_bus **);
    sd_bus *(*flush_close_unref)(sd_bus *);
    int (*get_fd)(sd_bus *);
    int (*get_events)(sd_bus *);
    int (*get_timeout)(sd_bus *, uint64_t *);
    int (*process)(sd_bus *, sd_bus_message **);
    int (*call_method)(sd_bus *, const char *, const char *, const char *, const char *, sd_bus_error *,
                       sd_bus_message **, const char *, ...);
    void (*error_free)(sd_bus_error *);
    sd_bus_message *(*unref)(sd_bus_message *);
    int (*read)(sd_bus_message *, const char *, ...);
    int (*skip)(sd_bus_message *, const char *);
    int (*enter)(sd_bus_message *, char, const char *);
    int (*leave)(sd_bus_message *);
    int (*is_signal)(sd_bus_message *, const char *, const char *);
    const char *(*sender)(sd_bus_message *);
    const char *(*path)(sd_bus_message *);
};

static int load(ward_bus *bus) {
    /* Never closed: a library that was in use can't be unloaded safely. */
    bus->library = dlopen("libsystemd.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!bus->library) return -ELIBACC;
    const struct {
        const char *name;
        void *slot;
    } symbols[] = {
        {"sd_bus_open_system", &bus->open_system},
        {"sd_bus_flush_close_unref", &bus->flush_close_unref},
        {"sd_bus_get_fd", &bus->get_fd},
        {"sd_bus_get_events", &bus->get_events},
        {"sd_bus_get_timeout", &bus->get_timeout},
        {"sd_bus_process", &bus->process},
        {"sd_bus_call_method", &bus->call_method},
        {"sd_bus_error_free", &bus->error_free},
        {"sd_bus_message_unref", &bus->unref},
        {"sd_bus_message_read", &bus->read},
        {"sd_bus_message_skip", &bus->skip},
        {"sd_bus_message_enter_container", &bus->enter},
        {"sd_bus_message_exit_container", &bus->leave},
        {"sd_bus_message_is_signal", &bus->is_signal},
        {"sd_bus_message_get_sender", &bus->sender},
        {"sd_bus_message_get_path", &bus->path},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *address = dlsym(bus->library, symbols[i].name);
        if (!address) return -ENOSYS;
        memcpy(symbols[i].slot, &address, sizeof address);
    }
    return 0;
}

/* Calls the bus itself or logind with one string; `reply` may be NULL. */
static int call_with_string(ward_bus *bus, const char *service, const char *member, const char *argument,
                            sd_bus_message **reply) {
    return bus->call_method(bus->bus, service, "/org/freedesktop/DBus", service, member, NULL, reply, "s", argument);
}

static int add_match(ward_bus *bus, const char *rule) {
    return call_with_string(bus, "org.freedesktop.DBus", "AddMatch", rule, NULL);
}

/* 0 if a process has logind's name, or the bus can start one; else -ENXIO. */
static int find_manager(ward_bus *bus) {
    if (call_with_string(bus, "org.freedesktop.DBus", "GetNameOwner", LOGIND, NULL) >= 0) return 0;
    int result = bus->call_method(bus->bus, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus",
                                  "StartServiceByName", NULL, NULL, "su", LOGIND, (uint32_t)0);
    return result < 0 ? -ENXIO : 0;
}

int ward_bus_open(ward_bus **out, int sessions) {
    ward_bus *bus = calloc(1, sizeof *bus);
    if (!bus) return -ENOMEM;
    int result = load(bus);
    if (result >= 0) result = bus->open_system(&bus->bus);
    if (result >= 0)
        result = add_match(bus, "type='signal',sender='org.freedesktop.login1',path='/org/freedesktop/login1',"
                                "interface='org.freedesktop.login1.Manager'");
    if (result >= 0)
        result = add_match(bus, "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',"
                                "member='NameOwnerChanged',arg0='org.freedesktop.login1'");
    if (result >= 0 && sessions)
        result = add_match(bus, "type='signal',sender='org.freedesktop.login1',"
                                "path_namespace='/org/freedesktop/login1/session',"
                                "interface='org.freedesktop.login1.Session',member='Lock'");
    if (result >= 0 && sessions)
        result = add_match(bus, "type='signal',sender='org.freedesktop.login1',"
                                "path_namespace='/org/freedesktop/login1/session',"
                                "interface='org.freedesktop.DBus.Properties',member='PropertiesChanged'");
    if (result >= 0) result = find_manager(bus);
    if (result < 0) {
        ward_bus_close(bus);
        return result;
    }
    *out = bus;
    return 0;
}

void ward_bus_close(ward_bus *bus) {
    if (bus->bus) bus->flush_close_unref(bus->bus);
    free(bus);
}

int ward_bus_descriptor(ward_bus *bus) { return bus->get_fd(bus->bus); }

int ward_bus_events(ward_bus *bus) { return bus->get_events(bus->bus); }

int ward_bus_timeout_milliseconds(ward_bus *bus) {
    uint64_t until = 0;
    if (bus->get_timeout(bus->bus, &until) < 0 || until == UINT64_MAX) return -1;
    /* `until` is in microseconds on CLOCK_MONOTONIC. After too short a wait the caller only asks
     * again. */
    return until == 0 ? 0 : 100;
}

/* Whether logind sent the message. Any program may send a signal right to this connection, also
 * one that it did not ask for. */
static int is_from_logind(ward_bus *bus, sd_bus_message *message) {
    const char *sender = bus->sender(message), *owner = NULL;
    if (!sender) return 0;
    sd_bus_message *reply = NULL;
    int ok = call_with_string(bus, "org.freedesktop.DBus", "GetNameOwner", LOGIND, &reply) >= 0 &&
             bus->read(reply, "s", &owner) > 0 && strcmp(owner, sender) == 0;
    if (reply) bus->unref(reply);
    return ok;
}

/* The value of LockedHint in a PropertiesChanged of a session; -1 where the message has none. */
static int locked_hint(ward_bus *bus, sd_bus_message *message) {
    const char *interface = NULL;
    int value = -1;
    if (bus->read(message, "s", &interface) <= 0 || strcmp(interface, SESSION) != 0) return -1;
    if (bus->enter(message, 'a', "{sv}") <= 0) return -1;
    while (bus->enter(message, 'e', "sv") > 0) {
        const char *name = NULL;
        if (bus->read(message, "s", &name) <= 0) return -1;
        if (strcmp(name, "LockedHint") == 0) {
            if (bus->read(message, "v", "b", &value) <= 0) return -1;
        } else if (bus->skip(message, "v") < 0) {
            return -1;
        }
        if (bus->leave(message) < 0) return -1;
    }
    return value;
}

/* NameOwnerChanged of logind's name: the third string is empty where no process has the name any
 * more. */
static void describe_owner(ward_bus *bus, sd_bus_message *message, ward_bus_signal *out) {
    const char *sender = bus->sender(message), *name = NULL, *before = NULL, *after = NULL;
    /* The bus itself sets the sender, so no program can forge it. */
    if (!sender || strcmp(sender, "org.freedesktop.DBus") != 0) return;
    if (bus->read(message, "sss", &name, &before, &after) <= 0 || strcmp(name, LOGIND) != 0) return;
    out->kind = WARD_BUS_MANAGER;
    out->flag = after[0] != 0;
}

static void describe(ward_bus *bus, sd_bus_message *message, ward_bus_signal *out) {
    int kind = WARD_BUS_OTHER, flag = 1;
    if (bus->is_signal(message, "org.freedesktop.DBus", "NameOwnerChanged") > 0) {
        describe_owner(bus, message, out);
        return;
    }
    if (bus->is_signal(message, MANAGER, "PrepareForSleep") > 0)
        kind = WARD_BUS_SLEEP;
    else if (bus->is_signal(message, MANAGER, "PrepareForShutdown") > 0)
        kind = WARD_BUS_SHUTDOWN;
    else if (bus->is_signal(message, MANAGER, "SessionNew") > 0 ||
             bus->is_signal(message, MANAGER, "SessionRemoved") > 0 ||
             bus->is_signal(message, MANAGER, "UserRemoved") > 0)
        kind = WARD_BUS_SESSIONS;
    else if (bus->is_signal(message, SESSION, "Lock") > 0)
        kind = WARD_BUS_SESSION_LOCK;
    else if (bus->is_signal(message, "org.freedesktop.DBus.Properties", "PropertiesChanged") > 0)
        kind = WARD_BUS_LOCKED_HINT;
    if (kind == WARD_BUS_OTHER || !is_from_logind(bus, message)) return;
    if (kind == WARD_BUS_LOCKED_HINT)
        flag = locked_hint(bus, message);
    else if (kind != WARD_BUS_SESSION_LOCK && kind != WARD_BUS_SESSIONS && bus->read(message, "b", &flag) <= 0)
        return;
    const char *path = bus->path(message);
    if (flag < 0 || !path || strlen(path) >= sizeof out->path) return;
    strcpy(out->path, path);
    out->kind = kind;
    out->flag = flag;
}

int ward_bus_next(ward_bus *bus, ward_bus_signal *out) {
    memset(out, 0, sizeof *out);
    sd_bus_message *message = NULL;
    int result = bus->process(bus->bus, &message);
    if (message) {
        describe(bus, message, out);
        bus->unref(message);
    }
    return result > 0 ? 1 : result;
}

int ward_bus_inhibit(ward_bus *bus, const char *what, const char *who, const char *why) {
    sd_bus_message *reply = NULL;
    int descriptor = -1;
    int result = bus->call_method(bus->bus, LOGIND, "/org/freedesktop/login1", MANAGER, "Inhibit", NULL, &reply,
                                  "ssss", what, who, why, "delay");
    if (result >= 0) result = bus->read(reply, "h", &descriptor);
    /* The message owns its descriptor, so this returns a copy. */
    if (result > 0) result = fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
    else if (result == 0) result = -EBADMSG;
    if (result == -1) result = -errno;
    if (reply) bus->unref(reply);
    return result;
}

int ward_bus_session_user(ward_bus *bus, const char *path, uint32_t *uid) {
    sd_bus_message *reply = NULL;
    const char *object = NULL;
    int result = bus->call_method(bus->bus, LOGIND, path, "org.freedesktop.DBus.Properties", "Get", NULL, &reply,
                                  "ss", SESSION, "User");
    if (result >= 0) result = bus->read(reply, "v", "(uo)", uid, &object);
    if (reply) bus->unref(reply);
    return result < 0 ? result : result == 0 ? -EBADMSG : 0;
}

int ward_bus_user_state(ward_bus *bus, uint32_t uid, char *state, size_t capacity) {
    sd_bus_message *reply = NULL, *value = NULL;
    sd_bus_error error = {0};
    const char *path = NULL, *text = NULL;
    int result = bus->call_method(bus->bus, LOGIND, "/org/freedesktop/login1", MANAGER, "GetUser", &error, &reply,
                                  "u", uid);
    if (result < 0) {
        int is_unknown = error.name && strcmp(error.name, "org.freedesktop.login1.NoSuchUser") == 0;
        bus->error_free(&error);
        return is_unknown ? -ENXIO : result;
    }
    result = bus->read(reply, "o", &path);
    if (result > 0)
        result = bus->call_method(bus->bus, LOGIND, path, "org.freedesktop.DBus.Properties", "Get", NULL, &value, "ss",
                                  "org.freedesktop.login1.User", "State");
    if (result >= 0) result = bus->read(value, "v", "s", &text);
    if (result > 0 && strlen(text) < capacity)
        strcpy(state, text);
    else if (result >= 0)
        result = -EBADMSG;
    bus->unref(reply);
    if (value) bus->unref(value);
    return result < 0 ? result : 0;
}
