/*
 * The worker that serves alone, and the lock that has the buffers of all workers wiped.
 *
 * It is a model of its own: this protocol knows neither classes nor keys, and the lock asks it only
 * for clean buffers. lock.pml says how the comments name the code.
 *
 * Settings (-D): LOCKS: the buffers are wiped. HANGS: one request never ends. WORKERS=n, REQUESTS=n.
 * M_...: a mistake on purpose.
 */
#ifndef WORKERS
#define WORKERS 3
#endif
#if WORKERS > 2
#define ALSO(step) step
#else
#define ALSO(step)
#endif
#ifndef REQUESTS
#define REQUESTS 2
#endif
#define NOBODY 255
#define ASLEEP 2                    /* more than any demand */

byte queued                         /* requests at the device */
byte owner = NOBODY                 /* code: SoleWorker.isServedByOther */
byte state                          /* code: SoleWorker.rest; odd while there is an owner. */
bool beat                           /* code: SoleWorker.noteBeat; the owner serves a request */
bool hasWatch                       /* code: SoleWorker.hasWatch */
bool isWaiting[WORKERS]             /* asleep at the futex of `state` */
bool isAtDevice[WORKERS]            /* code: SoleWorker.whileAtDevice */
bool isInterrupted[WORKERS]         /* code: InterruptingSignal.send */
byte demand                         /* code: DeviceShare.wipeDemand */
byte met[WORKERS]                   /* code: WipeProgress.met */
bool isDirty[WORKERS]               /* the buffer holds an answered request of before the demand */
bool hasHung                        /* one request does not end */
bool isLocking, isDone

/* Lets all workers serve. code: SoleWorker.end */
inline endTurn() {
    seen = state;
    if
    :: seen % 2 == 1 ->
        if
        :: d_step { state == seen -> state = (state + 1) % 16 }
            owner = NOBODY;
#ifndef M_NO_WAKE
            d_step { isWaiting[0] = false; isWaiting[1] = false; ALSO(isWaiting[2] = false) }
#endif
        :: else
        fi
    :: else
    fi;
    seen = 0
}

/* A signal to a worker that is not in its system call is lost. code: SoleWorker.sendOthersAway */
inline sendOthersAway() {
    d_step {
        isInterrupted[0] = isAtDevice[0] && me != 0;
        isInterrupted[1] = isAtDevice[1] && me != 1;
        ALSO(isInterrupted[2] = isAtDevice[2] && me != 2)
    }
}

/* Looks after the owner. code: SoleWorker.watch, WatchPolicy.tick, WatchPolicy.queueSeen */
inline watch() {
    lastBeat = beat;
    do
    :: state != now -> break
    :: state == now ->
        if
        /* The same request, or none, for long; or another waits while one is being served. */
#ifndef M_NO_HANDOVER
        :: beat == lastBeat -> endTurn(); break
#endif
        :: beat != lastBeat -> lastBeat = beat
        fi
    od;
    lastBeat = 0;
    hasWatch = false
}

/* code: SoleWorker.rest */
inline rest() {
    now = state;
    if
    :: now % 2 == 1 && owner != NOBODY && owner != me ->
        if
        :: d_step { !hasWatch -> hasWatch = true }
            watch()
        :: else ->
            /* futex(2) looks at the word and sleeps in one step. */
#ifdef M_SLEEP_BLINDLY
            isWaiting[me] = true;
#else
            d_step { isWaiting[me] = (state == now) };
#endif
            !isWaiting[me]
        fi
    :: else
    fi;
    now = 0
}

/* code: FUSEConnection.work, DeviceTransport.nextRequest */
active [WORKERS] proctype Worker() {
    byte me = _pid, wipes, now, seen;
    bool lastBeat;
    bool isServing, isSole;
next:
    do
    :: true ->
        /* code: DeviceTransport.meetWipeDemand */
#ifdef LOCKS
        if
        :: demand != wipes ->
            d_step { wipes = demand; isDirty[me] = false };
            met[me] = wipes
        :: else
        fi;
#endif
        /* code: DeviceTransport.look */
        if
        :: owner == NOBODY || owner == me ->
            if
            :: d_step { queued > 0 -> queued--; isServing = true; isDirty[me] = false }
            :: else
            fi
        :: else
        fi;
        if
        :: !isServing ->
            /* code: DeviceTransport.sleep */
#ifdef LOCKS
#ifndef M_SLEEP_DIRTY
            isDirty[me] = false;
#endif
            met[me] = ASLEEP;
#endif
            if
            :: owner != NOBODY && owner != me -> rest()
            :: else ->
                isAtDevice[me] = true;
end_device:     if
                :: d_step { queued > 0 -> queued--; isServing = true; isDirty[me] = false }
                :: d_step { isInterrupted[me] -> isInterrupted[me] = false }
                fi;
                d_step { isAtDevice[me] = false; isInterrupted[me] = false }
            fi;
#ifdef LOCKS
            met[me] = wipes
#endif
        :: else
        fi;
        if
        :: isServing ->
            /* code: DeviceTransport.noteRequest, SoleWorker.begin */
            if
            :: isSole && owner != me -> isSole = false
            :: !isSole ->
                if
                :: d_step { owner == NOBODY -> owner = me; isSole = true }
                    state = (state + 1) % 16;
                    sendOthersAway()
                :: true
                fi
            :: else
            fi;
            if
            :: isSole && !beat -> beat = !beat
            :: else
            fi;
            /* code: RequestServer.serve */
#ifdef HANGS
            if
            :: true
            :: d_step { !hasHung -> hasHung = true };
end_hung:       false
            fi;
#endif
            #ifdef LOCKS
            isDirty[me] = (demand == 0);
#endif
            isServing = false;
            /* code: DeviceTransport.noteServed */
            if
            :: isSole && owner == me && beat -> beat = !beat
            :: isSole && owner == me -> isSole = false; endTurn()
            :: isSole && owner != me -> isSole = false
            :: else
            fi
        :: else
        fi
    od
}

/* A program. */
active proctype Program() {
    byte count;
end_idle:
    do
    :: d_step { count < REQUESTS -> count++; queued++ }
    od
}

#ifdef LOCKS
/* Has the buffers wiped. code: FUSEConnection.wipeRequestBuffers, WipeProgress.await */
active proctype Lock() {
    byte each;
    isLocking = true;
    demand = 1;
    d_step {
        isInterrupted[0] = isInterrupted[0] || (isAtDevice[0] && met[0] < 1);
        isInterrupted[1] = isInterrupted[1] || (isAtDevice[1] && met[1] < 1);
        ALSO(isInterrupted[2] = isInterrupted[2] || (isAtDevice[2] && met[2] < 1))
    };
    do
    :: each < WORKERS ->
        if
        :: met[each] >= 1 -> assert(!isDirty[each])
#if defined(HANGS) && !defined(M_NO_DEADLINE)
        :: hasHung
#endif
        fi;
        each++
    :: else -> break
    od;
    isDone = true
}
#endif

/* (3) The lock ends, whoever serves alone. */
#ifdef LTL_ENDS
ltl ends { <> isDone }
#endif
/* No request waits for ever, also where the sole worker's own does. */
#ifdef LTL_SERVED
ltl served { [] (queued > 0 -> <> (queued == 0)) }
#endif
