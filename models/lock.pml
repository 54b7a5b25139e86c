/*
 * The lock of one class, for one file of the class with one page.
 *
 * A comment that begins with "code" names the Swift code that a step stands for; "kernel:" names a
 * function of Linux. scripts/check-model checks that the Swift names exist, and runs the model:
 * docs/verification.md, "The lock as a model".
 *
 * Each line that other threads can see is a step of its own. A wait with a time limit may end at
 * any moment (LIMIT): the model has no clock, and knows only the order of steps.
 *
 * Settings (-D):
 *   KEPT          class B, whose open files stay usable; without it class A
 *   READS=n       programs cause n READs
 *   WRITES=n      they change the page n times
 *   OPENS=n       they close and open the file, n times together
 *   SHUT          the file is closed at first
 *   LOCKS=n       n locks, with an unlock in between
 *   UNLOCK        an unlock after the last lock, too
 *   HUNG          the backing store may stop to answer, for ever or for a while
 *   FAILS         the backing store may refuse a write
 *   FULL          other files may have taken the room for accepted pages
 *   OVERTAKEN     the lock thread may give an eviction up, and the connection can't be cut: an unlock
 *                 overtakes the eviction
 *   PROMPT        no time limit runs out
 *   M_...         a mistake on purpose, which the model has to find
 */
#ifndef READS
#define READS 0
#endif
#ifndef WRITES
#define WRITES 0
#endif
#ifndef OPENS
#define OPENS 0
#endif
#ifndef LOCKS
#define LOCKS 1
#endif
#ifdef KEPT
#define IS_KEPT true
#else
#define IS_KEPT false
#endif
#ifdef PROMPT
#define LIMIT false
#else
#define LIMIT true
#endif
#define WORKERS 2
#define DROPPERS (1 + LOCKS)

/* code: ClassGate.State */
mtype = { OPEN, CLOSING, CLOSED, FILES_ONLY }
/* A request, seen by the kernel. */
mtype = { IDLE, QUEUED, TAKEN }
/* The kernel's page. */
mtype = { ABSENT, CLEAN, DIRTY }
/* The work of a thread. */
mtype = { FREE, ASKED, IN_TIME, LATE, LEFT }

/* ---- The daemon ---- */

mtype gate = OPEN                 /* code: ClassGate.state */
bool classKey = true              /* code: ClassKeyring.evict */
bool fileKey                      /* code: FileKey.isInMemory */
bool content[WORKERS]             /* code: WorkerContext.lockContent */
bool cipher[WORKERS]              /* code: WorkerContext.holdsSecrets; a cipher or plaintext */
bool contextsLock                 /* code: WorkerContexts.forEach */
bool isBusy                       /* worker 0 serves a request */
byte latest                       /* code: Evictions.begin */
bool reading[WORKERS], writing    /* code: OpenFile.withReadLock, OpenFile.withWriteAccess */
bool fileOpen = true              /* code: Volume.attach; node.file is there */
byte handles = 1                  /* code: FileHandle.end; the count of kernelHandles */
bool pagesExist = true            /* code: Volume.open; node.cachedPages.exist */
byte drops                        /* code: PageDrops.announce */
bool opening                      /* code: PageDrops.open */
byte laterDrops                   /* code: Volume.invalidateLater; jobs of the background thread */
byte waiting, storing             /* code: PendingStores.add, PendingStores.nextRun; versions, 0: none */
bool isRefusing                   /* code: PendingStores.refuse */

mtype recipe[2] = FREE            /* code: StandbyThread.run */
byte number[2]                    /* code: Eviction.number */
mtype dropper[DROPPERS] = FREE          /* code: Eviction.invalidate */

/* ---- The kernel and the backing store ---- */

mtype page = ABSENT
byte pageVersion
bool pageLock
mtype readRequest = IDLE, backRequest = IDLE, writeRequest = IDLE
mtype openRequest = IDLE, closeRequest = IDLE
byte backVersion
/* Before Linux 6.16 pages are written back from copies: code: FUSEConnection.awaitWriteBacks. */
bool copies
bool isAborted
bool programHasFile = true
byte stored = 1
bool isHung

/* ---- What the properties speak of. No step of the lock reads it. ---- */

byte version = 1      /* of the newest bytes that a program gave to the kernel */
byte accepted = 1     /* the newest version that was acknowledged */
byte storeLost        /* the newest accepted version that could not be stored, by an event */
byte pageLost         /* the newest refused write-back, by an event */
byte fileLost         /* what an event said of the whole file at the deadline */
byte gone             /* the newest version that the kernel gave up unacknowledged */
bool cutReported      /* code: LockKeeper.evict; the event that what was not written back is lost */
bool limitPassed      /* a time limit ran out: the reason for a loss */
bool storeFailed      /* the store refused a write, or was hung: the reason for a loss */
bool isLocking        /* the lock runs */
bool isLocked         /* the lock was reported */
bool isClean          /* the lock was reported, and its deadline did not pass */
bool isUnlocked = true
bool isEnded          /* the last lock, or unlock, is over */

#define TAKE(mutex) atomic { !mutex -> mutex = true }
#define GIVE(mutex) mutex = false
#ifdef HUNG
#define STORE !isHung
#else
#define STORE true
#endif
#if WRITES > 0
#define READ_LOCK atomic { !writing -> reading[me] = true }
#define READ_UNLOCK reading[me] = false
#else
#define READ_LOCK skip
#define READ_UNLOCK skip
#endif
#define WRITE_LOCK atomic { !writing && !reading[0] && !reading[1] -> writing = true }
#define NEWER(a, b) ((a) > (b) -> (a) : (b))

/* Takes a content lock once, and wipes what it guards. `isLate` says that the time is over. */
/* code: WorkerContext.drain */
inline drainOne(who, wiping, complete) {
    if
    :: d_step { !content[who] -> cipher[who] = cipher[who] && !wiping }
#ifndef M_NO_DEADLINE
    :: d_step { (LIMIT || isLate) && content[who] -> limitPassed = true; isLate = true; complete = false }
#endif
    fi
}

/* The mutex of the list has no time limit. */
/* code: WorkerContexts.drain */
inline drain(wiping, complete) {
    complete = true;
#if OPENS > 0
    TAKE(contextsLock);
#endif
    drainOne(0, wiping, complete);
    drainOne(1, wiping, complete);
#if OPENS > 0
    GIVE(contextsLock)
#endif
}

/* ---- A worker ---- */

/* Of two idle workers the first takes the request: nothing tells them apart. */
#define IS_NEXT (me == 0 || isBusy)
#define BEGIN if :: me == 0 -> isBusy = true :: else fi
#define END if :: me == 0 -> isBusy = false :: else fi

/* code: Volume.isAdmitted */
#define ADMITS_READ (gate == OPEN || (gate == FILES_ONLY && fileKey))
#define ADMITS_BACK (ADMITS_READ || gate == CLOSING)

/* Takes the content lock, then asks the gate. `admits` is its answer. */
/* code: Volume.enter */
inline enter(question) {
#ifdef M_GATE_BEFORE_CONTENT
    d_step { admits = question; late = isLocked };
    TAKE(content[me])
#else
    TAKE(content[me]);
    d_step { admits = question; late = isLocked }
#endif
}

/* code: CipherCache.with, FileKey.withKey, Volume.loadKey */
inline takeCipher() {
    d_step {
        if
        :: admits && (fileKey || classKey) -> fileKey = true; cipher[me] = true
        :: else -> admits = false
        fi
    };
    /* A wipe under the worker's hands would be seen here. code: Volume.decode, Volume.seal */
    assert(!admits || cipher[me])
}

/* code: Volume.wipeAfterClose, Volume.invalidateLater */
inline wipeAfterClose() {
    drain(true, complete);
    d_step {
        isLate = false;
        if
        :: pagesExist && !opening -> drops++; laterDrops++
        :: else
        fi
    }
}

/* The last use of the file ends. code: Volume.release, Volume.detach */
inline releaseFile() {
    d_step {
        admits = false;
        if
        :: handles == 0 && waiting == 0 && storing == 0 && fileOpen ->
            admits = fileKey || pagesExist; fileKey = false; fileOpen = false
        :: else
        fi
    };
    if
    :: admits && gate != OPEN -> wipeAfterClose()
    :: else
    fi
}

/* code: Volume.end */
inline endHandle() {
    handles--;
    if
    :: d_step { gate != OPEN && handles == 0 && (fileKey || pagesExist) -> fileKey = false }
        wipeAfterClose()
    :: else
    fi;
    releaseFile()
}

/* Reports that a version is lost. It must have a reason. code: Reporter.report */
inline lose(lost) {
    assert(limitPassed || storeFailed);
    pageLost = NEWER(lost, pageLost)
}

proctype Worker(byte me) {
    byte mine;
    bool admits, late, complete, later, isLate;
end_idle:
    do
#if READS > 0
    /* code: RequestServer.read, Volume.read */
    :: d_step { readRequest == QUEUED && IS_NEXT -> readRequest = TAKEN; BEGIN }
        READ_LOCK;
        /* Accepted pages first, then the store. code: Volume.readPages, PendingStores.latest */
#ifdef M_STORE_BEFORE_PENDING
end_read0:
        d_step { STORE -> mine = stored }
        d_step { if :: waiting -> mine = waiting :: !waiting && storing -> mine = storing :: else fi }
#else
        mine = (waiting -> waiting : storing);
end_read:
        d_step { STORE -> mine = (mine == 0 -> stored : mine) }
#endif
        assert(mine >= accepted || storeLost >= accepted);
        enter(ADMITS_READ);
        takeCipher();
#ifdef M_REPLY_AFTER_CONTENT
        GIVE(content[me]);
#endif
        READ_UNLOCK;
        /* The reply fills the page, or the request fails. code: RequestServer.send */
        d_step {
            if
            :: readRequest == TAKEN && admits ->
                assert(!late || (IS_KEPT && handles > 0));
                assert(!isClean || IS_KEPT);
                page = CLEAN; pageVersion = mine
            :: else
            fi;
            if :: readRequest == TAKEN -> readRequest = IDLE; pageLock = false :: else fi
        };
        /* code: WorkerContext.finishRequest */
        d_step { GIVE(content[me]); mine = 0; late = false; admits = false; END }
#endif
#if WRITES > 0
    /* A page that the kernel writes back. code: RequestServer.write, Volume.write, Volume.rewrite */
    :: d_step { backRequest == QUEUED && IS_NEXT -> backRequest = TAKEN; mine = backVersion; BEGIN }
        WRITE_LOCK;
        /* Old bytes of the page may be needed. code: Volume.readOld */
end_old:
        if
        :: STORE
        :: true
        fi;
        enter(ADMITS_BACK);
        later = admits && gate == CLOSING;
        takeCipher();
        GIVE(content[me]);
        if
        :: admits && later ->
            /* code: Volume.storeLater, PendingStores.add */
#ifdef FULL
            /* Other files have taken the room. */
end_room:   if
            :: isRefusing -> admits = false
            :: STORE
            fi;
#endif
            d_step { if :: admits -> waiting = mine :: else fi }
        :: admits && !later ->
#ifndef M_NO_SETTLE
end_settle: waiting == 0 && storing == 0;  /* code: Volume.settle */
#endif
end_put:    if
            :: d_step { STORE -> assert(mine >= stored); stored = mine }
#ifdef FAILS
            :: d_step { STORE -> storeFailed = true; admits = false }
#endif
            fi
        :: else
        fi;
        d_step {
            writing = false;
            if :: !admits -> lose(mine) :: else fi;
            if
            :: backRequest == TAKEN && admits -> accepted = NEWER(mine, accepted)
            :: backRequest == TAKEN && !admits -> gone = NEWER(mine, gone)
            :: else
            fi;
            if :: backRequest == TAKEN -> backRequest = IDLE; backVersion = 0 :: else fi;
            mine = 0; later = false; late = false; admits = false; END
        }
    /* write(2). code: RequestServer.write, Volume.rewrite */
    :: d_step { writeRequest == QUEUED && IS_NEXT -> writeRequest = TAKEN; mine = version; BEGIN }
        WRITE_LOCK;
        enter(ADMITS_READ);
        takeCipher();
        GIVE(content[me]);
        if
        :: admits ->
#ifndef M_NO_SETTLE
end_settle2: waiting == 0 && storing == 0;
#endif
end_put2:   if
            :: d_step { STORE -> assert(mine >= stored); stored = mine }
#ifdef FAILS
            :: d_step { STORE -> admits = false }
#endif
            fi
        :: else
        fi;
        d_step {
            writing = false;
            if
            :: writeRequest == TAKEN && admits ->
                accepted = NEWER(mine, accepted);
                page = CLEAN; pageVersion = mine
            :: else
            fi;
            if :: writeRequest == TAKEN -> writeRequest = IDLE; pageLock = false :: else fi;
            mine = 0; late = false; admits = false; END
        }
#endif
#if OPENS > 0
    /* code: RequestServer.release, Volume.end */
    :: d_step { closeRequest == QUEUED && IS_NEXT -> closeRequest = TAKEN; BEGIN }
        endHandle();
        d_step {
            if :: closeRequest == TAKEN -> closeRequest = IDLE :: else fi;
            admits = false; complete = false; END
        }
    /* code: RequestServer.open, Volume.open, Volume.acquire */
    :: d_step { openRequest == QUEUED && IS_NEXT -> openRequest = TAKEN; BEGIN; fileOpen = true; handles++ }
        admits = (gate == OPEN);         /* code: Volume.mayOpen */
        if
        :: admits && !fileKey ->
            WRITE_LOCK;
            enter(ADMITS_READ);
            takeCipher();                /* code: Volume.verifyEnd */
            d_step { GIVE(content[me]); writing = false }
        :: else
        fi;
        if
        :: admits ->
            pagesExist = true;
            d_step { if :: openRequest == TAKEN -> openRequest = IDLE; programHasFile = true :: else handles-- fi }
        :: else ->
            endHandle();
            d_step { if :: openRequest == TAKEN -> openRequest = IDLE :: else fi }
        fi;
        d_step { admits = false; complete = false; late = false; END }
#endif
    od
}

/* ---- Other threads of the daemon ---- */

#if WRITES > 0
/* code: Volume.storePending, PendingStores.nextRun, PendingStores.finish */
proctype Storer() {
end_idle:
    do
    :: d_step { waiting > 0 -> storing = waiting; waiting = 0 }
end_put: 
        if
        :: d_step { STORE -> assert(storing >= stored); stored = storing }
#ifdef FAILS
        /* Exactly once: this version was not reported before. */
        :: d_step { STORE -> storeFailed = true; assert(storeLost < storing); storeLost = storing }
#endif
        fi;
#ifdef M_FINISH_FORGETS
        d_step { storing = 0; waiting = 0 }
#else
        storing = 0
#endif
    od
}
#endif

/* code: Volume.isClosed */
#define IS_CLOSED (gate == CLOSING || gate == CLOSED || (gate == FILES_ONLY && !(handles > 0 && fileKey)))

/* The kernel drops the page: code: FUSEConnection.invalidateContent */
/* kernel: invalidate_inode_pages2_range, fuse_launder_folio */
/* The kernel waits for a READ of the page; the model does not rely on that. */
inline drop() {
    if
    :: page == ABSENT && (!pageLock || readRequest != IDLE)
    :: d_step { !pageLock && page != ABSENT -> pageLock = true }
#if WRITES > 0
        copies || backRequest == IDLE;
        if
        :: page == DIRTY ->
            d_step {
                backRequest == IDLE;
                page = CLEAN;
                if
                :: isAborted -> gone = NEWER(pageVersion, gone)
                :: else -> backVersion = pageVersion; backRequest = QUEUED
                fi
            };
            backRequest == IDLE
        :: else
        fi;
#endif
        d_step { page = ABSENT; pageVersion = 0; pageLock = false }
    fi
}

#if OPENS > 0
/* The drop after a close. code: Volume.invalidateLater, PageDrops.perform */
proctype Background() {
end_idle:
    do
    :: laterDrops > 0 ->
        if
#ifdef M_CLEAR_BEFORE_DROP
        :: d_step { handles == 0 && IS_CLOSED -> pagesExist = false }
            drop()
#else
        :: handles == 0 && IS_CLOSED -> drop()
#endif
        :: else
        fi;
        d_step { drops--; laterDrops-- }
    od
}
#endif

/* The kernel has a request that was not answered. */
#define IS_WAITING (readRequest != IDLE || backRequest != IDLE || writeRequest != IDLE || openRequest != IDLE \
    || closeRequest != IDLE)

/* The threads of an eviction. code: Eviction.invalidate */
proctype Dropper(byte own) {
end_idle:
    do
    :: dropper[own] == ASKED || dropper[own] == LEFT ->
        /* code: PageDrops.announce, PageDrops.perform, Eviction.keepInMind */
        if
        :: d_step { !opening -> drops++ }
            if
            :: IS_CLOSED -> drop()
            :: else -> pagesExist = true
            fi;
            drops--
        :: else -> pagesExist = true
        fi;
        dropper[own] = (dropper[own] == ASKED -> IN_TIME : FREE)
    od
}

/* Waits for the dropper. code: Eviction.dropPages, Eviction.invalidate, Eviction.reportLost */
inline invalidate() {
    if
    :: d_step { dropper[0] == FREE -> dropper[0] = ASKED; mine = 0 }
    :: d_step { dropper[0] != FREE && dropper[1] == FREE -> dropper[1] = ASKED; mine = 1 }
#if DROPPERS > 2
    :: d_step { dropper[0] != FREE && dropper[1] != FREE -> dropper[2] == FREE; dropper[2] = ASKED; mine = 2 }
#endif
    fi;
    if
    :: d_step { dropper[mine] == IN_TIME -> dropper[mine] = FREE; mine = 0 }
#ifndef M_NO_DEADLINE
    :: d_step { (LIMIT || isLate) && dropper[mine] == ASKED ->
            dropper[mine] = LEFT; mine = 0;
            limitPassed = true; isLate = true; isInTime = false; pagesExist = true;
            if :: handles > 0 -> fileLost = NEWER(version, fileLost) :: else fi }
#endif
    fi
}

/* ---- The lock ---- */

/* Loads the key of an open file that stays usable. code: Eviction.loadKeys */
inline loadKeys() {
    if
    :: IS_KEPT && !fileKey && handles > 0 && !writing && classKey -> fileKey = true
    :: else
    fi
}

/* One of the standby threads. code: StandbyThread.run, Eviction.run */
proctype Recipe(byte own) {
    byte mine;
    bool isDrained, isInTime, isMeant, isWiped, isLate;
end_idle:
    do
    :: recipe[own] == ASKED ->
#ifdef M_LATE_START
        d_step { latest++; number[own] = latest }
#endif
#ifdef M_DROP_BEFORE_CLOSING
        isInTime = true;
        invalidate();
#endif
        /* code: Eviction.beginClosing */
        d_step { loadKeys() };
        d_step {
            if
            :: number[own] == latest -> isRefusing = false; gate = (IS_KEPT -> FILES_ONLY : CLOSING)
            :: else
            fi
        };
#ifdef M_KEYS_BEFORE_DROPS
        d_step { gate = (IS_KEPT -> FILES_ONLY : CLOSED); classKey = false; fileKey = false };
#endif
#ifdef M_NO_DRAIN
        isDrained = true;
#else
        drain(false, isDrained);
#endif
        /* code: Eviction.nodesToInvalidate */
        d_step {
            if
            :: !IS_KEPT -> isMeant = pagesExist; pagesExist = fileOpen
            :: IS_KEPT && handles == 0 -> isMeant = pagesExist; pagesExist = false
            :: else
            fi
        };
#ifndef M_DROP_BEFORE_CLOSING
        isInTime = true;
        if
        :: isMeant -> invalidate()
        :: else
        fi;
        isInTime = isInTime && isDrained;
#ifndef M_NO_DRAIN
        /* Once more. */
        d_step {
            if
            :: !isInTime -> isMeant = false
            :: isInTime && !IS_KEPT && fileOpen -> isMeant = pagesExist
            :: isInTime && !IS_KEPT && !fileOpen -> isMeant = isMeant && pagesExist; pagesExist = pagesExist && !isMeant
            :: isInTime && IS_KEPT && fileOpen && handles == 0 -> isMeant = pagesExist; pagesExist = false
            :: else -> isMeant = false
            fi
        };
        if
        :: isMeant -> invalidate()
        :: else
        fi;
#endif
#endif
        isMeant = false;
        if
        :: isInTime && copies ->
            /* code: FUSEConnection.awaitWriteBacks */
            if
            :: !IS_WAITING
            :: LIMIT || isLate -> limitPassed = true
            fi
        :: isInTime && !copies
        :: !isInTime -> d_step { if :: number[own] == latest -> isRefusing = true :: else fi }
        fi;
        /* The steps of one eviction are one step here: no worker can tell them apart. */
        /* code: Eviction.wipeKeys, Eviction.closeGate, Eviction.forgetUnusedKeys */
        d_step {
            if
#ifdef M_ANY_NUMBER
            :: true ->
#else
            :: number[own] == latest ->
#endif
                gate = (IS_KEPT -> FILES_ONLY : CLOSED);
                loadKeys();
                classKey = false;
                fileKey = fileKey && !(IS_KEPT && handles == 0)
            :: else
            fi
        };
#ifdef M_WIPE_WITHOUT_WAITING
        d_step { cipher[0] = false; cipher[1] = false; isWiped = true };
#else
        drain(true, isWiped);
#endif
        /* code: Eviction.forgetFileKeys */
        d_step {
            if
            :: number[own] == latest && !IS_KEPT -> fileKey = false
            :: else
            fi
        };
        /* code: PendingStores.wait */
        if
        :: waiting == 0 && storing == 0
        :: true                            /* two seconds */
        fi;
        d_step {
            if
            :: recipe[own] == ASKED -> recipe[own] = ((isInTime && isWiped) -> IN_TIME : LATE)
            :: else -> recipe[own] = FREE
            fi;
            isInTime = false; isWiped = false; isDrained = false; isLate = false; number[own] = 0
        }
    od
}

/* code: Volume.abandonEviction, Eviction.runWithoutWaiting */
inline abandon() {
    d_step {
        isRefusing = true;
        latest++;
        gate = (IS_KEPT -> FILES_ONLY : CLOSED);
        classKey = false;
        fileKey = fileKey && IS_KEPT && handles > 0
    }
}

/* kernel: fuse_abort_conn ends each request, and the connection takes no more. */
inline abort() {
    d_step {
        isAborted = true;
        if :: readRequest != IDLE -> readRequest = IDLE; pageLock = false :: else fi;
        if :: backRequest != IDLE -> gone = NEWER(backVersion, gone); backRequest = IDLE; backVersion = 0 :: else fi;
        if :: writeRequest != IDLE -> writeRequest = IDLE; pageLock = false :: else fi;
        closeRequest = IDLE;
        openRequest = IDLE
    }
}

/* Begins an eviction. code: Volume.beginEviction */
inline ask(who) {
    d_step { latest++; number[who] = latest; recipe[who] = ASKED }
}

/* Waits for the report of an eviction. code: LockKeeper.evict */
inline await(who) {
    if
    :: d_step { recipe[who] == IN_TIME -> inTime = true; hasReport = true; recipe[who] = FREE }
    :: d_step { recipe[who] == LATE -> hasReport = true; recipe[who] = FREE }
#ifdef OVERTAKEN
    :: d_step { recipe[who] == ASKED -> limitPassed = true; recipe[who] = LEFT }
#endif
    fi
}

/* The lock thread. code: LockKeeper.handle, LockKeeper.evict */
proctype Keeper() {
    byte locks;
    bool inTime, hasReport;

    do
    :: locks < LOCKS ->
        d_step { isUnlocked = false; isLocking = true; hasReport = false; inTime = false }
        if
        :: recipe[0] == FREE -> ask(0); await(0)
        :: recipe[0] != FREE && recipe[1] == FREE -> ask(1); await(1)
        :: else
        fi;
        if
        :: !inTime ->
            if
            :: !hasReport -> abandon()
            :: else
            fi;
#ifndef OVERTAKEN
            if
            :: abort();
                cutReported = true;
                ask(0);
                await(0)
            :: cutReported = true          /* no way to cut the connection */
            fi
#else
            cutReported = true
#endif
        :: else
        fi;
        d_step {
            isLocking = false;
            isLocked = true;
            isClean = inTime;
            assert(gone <= pageLost || gone <= fileLost || cutReported);
            locks++
        }
        if
        :: isAborted -> break              /* No unlock is taken. code: LockKeeper.post */
#if !defined(OVERTAKEN) && !defined(UNLOCK)
        :: !isAborted && locks == LOCKS -> break
#endif
        :: else
        fi;
        /* An unlock; it may have been posted at any time since. code: LockKeeper.post, Volume.admit */
        d_step { isLocked = false; isClean = false; classKey = true }   /* code: ClassKeyring.move */
        d_step { latest++; opening = true }                             /* code: PageDrops.open */
        if
        :: drops == 0
        :: LIMIT && drops > 0 -> limitPassed = true
        fi;
        gate = OPEN;
        d_step { opening = false; isUnlocked = true }
    :: else -> break
    od;
    isEnded = true
}

/* ---- Programs and the kernel ---- */

#if READS > 0
/* kernel: fuse_read_folio. The page is locked until the answer. */
proctype Reader() {
    byte count;
end_idle:
    do
    :: d_step { count < READS && page == ABSENT && !pageLock && programHasFile && !isAborted ->
            pageLock = true; count++; readRequest = QUEUED }
    od
}
#endif

#if WRITES > 0
/* Stores to a mapping, and their write-back by the kernel's threads and `ward write-back`. */
/* kernel: fuse_page_mkwrite, fuse_writepages */
proctype Mapper() {
end_idle:
    do
    :: d_step { version <= WRITES && page != ABSENT && !pageLock && backRequest == IDLE && programHasFile ->
            version++; pageVersion = version; page = DIRTY }
    :: d_step { page == DIRTY && !pageLock && backRequest == IDLE && !isAborted ->
            page = CLEAN; backVersion = pageVersion; backRequest = QUEUED }
    /* write(2) into a page that is not cached. kernel: fuse_send_write_pages */
    :: d_step { version <= WRITES && page == ABSENT && !pageLock && programHasFile && !isAborted && backRequest == IDLE ->
            pageLock = true; version++; writeRequest = QUEUED }
    od
}
#endif

#if OPENS > 0
/* Closes the file and opens it again. kernel: fuse_release, after each request that needs the handle */
proctype Opener() {
    byte count;
end_idle:
    do
    :: d_step { count < OPENS && programHasFile && !IS_WAITING && page != DIRTY && !isAborted ->
            programHasFile = false; count++; closeRequest = QUEUED }
    :: d_step { !programHasFile && closeRequest == IDLE && openRequest == IDLE && !isAborted && count < OPENS ->
            count++; openRequest = QUEUED }
    od
}
#endif

#ifdef HUNG
/* The store stops to answer once, for a while or for ever. */
proctype Store() {
    d_step { isHung = true; storeFailed = true };
    if
    :: isHung = false
    :: true
    fi
}
#endif

/* ---- Properties ---- */

/* (1) After a lock that kept its deadline no page is cached, and no secret is in memory. After any
 * lock that was reported, the keys are gone. */
#define DROPPED (!isClean || IS_KEPT || page == ABSENT)
#define WIPED (!isClean || IS_KEPT || (!cipher[0] && !cipher[1]))
#define KEYLESS (!isLocked || (!classKey && (IS_KEPT || !fileKey)))
/* (2) The newest accepted version is stored, or on its way, or reported. */
#define KEPT_SAFE (accepted <= stored || accepted <= storing || accepted <= waiting || accepted <= storeLost)
/* An unlock holds, whatever an eviction that it overtook still does. */
#define UNLOCKED (!isUnlocked || (gate == OPEN && classKey))

/* Has a step where one of these is broken, and where no other thread can ever do anything again. */
/* (3) Then the lock is over. Each run of the model ends: its threads do a bounded number of things. */
proctype Monitor() {
end_watch:
    if
    :: atomic { !(DROPPED && WIPED && KEYLESS && KEPT_SAFE && UNLOCKED) ->
        assert(DROPPED); assert(WIPED); assert(KEYLESS); assert(KEPT_SAFE); assert(UNLOCKED) }
    :: timeout -> assert(isEnded)
    fi
}

#ifdef LTL_ENDS
/* (3) A lock that began ends. */
ltl ends { [] (isLocking -> <> !isLocking) }
#endif
#ifdef LTL_CLOSED
/* (1) A file that is closed while its class is locked loses its key and its pages. */
ltl closed { [] ((isClean && handles == 0) -> <> (!isClean || handles > 0 || (page == ABSENT && !fileKey))) }
#endif

init {
    atomic {
#if WRITES > 0
        if :: copies = false :: copies = true fi;
#endif
        /* The key of a page that is cached was needed to read it. */
#if WRITES > 0
        page = CLEAN; pageVersion = 1; fileKey = true;
#else
        if :: fileKey = true :: fileKey = false fi;
#endif
#ifdef SHUT
        programHasFile = false; handles = 0; fileOpen = false; fileKey = false; page = CLEAN; pageVersion = 1;
#endif
        run Worker(0);
        run Worker(1);
        run Recipe(0);
        run Dropper(0);
        run Dropper(1);
#if LOCKS > 1
        run Dropper(2);
#endif
#if defined(OVERTAKEN) && LOCKS > 1
        run Recipe(1);
#endif
#if WRITES > 0
        run Storer();
        run Mapper();
#endif
#if READS > 0
        run Reader();
#endif
#if OPENS > 0
        run Background();
        run Opener();
#endif
#ifdef HUNG
        run Store();
#endif
        run Keeper();
        run Monitor()
    }
}
