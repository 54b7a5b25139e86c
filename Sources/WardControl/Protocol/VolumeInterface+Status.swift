extension VolumeInterface {
    /// The head of the interface and the types of the status.
    static let statusTypes = """
        # The lock state of one mounted ward volume. Class and state names are those of docs/semantics.md.
        #
        # In the sandbox of a container (ward container run --sandbox) there are Status and Monitor
        # alone, which tell the lock state and nothing else: uuid and volume are empty, counts are 0,
        # last must be 0. Other methods are MethodNotImplemented.
        interface org.ward.Volume

        # One protection class: its letter (A, B, C, D, CX), whether its files can be opened now, and how many are open.
        type ClassStatus (
          letter: string,
          name: string,
          available: bool,
          openFiles: int
        )

        # How often the kernel has sent one kind of request, by the names of linux/fuse.h (LOOKUP, READ).
        type RequestCount (
          name: string,
          count: int
        )

        # Something that locks the volume by itself: sleep, shutdown, screen or logout. armed: whether it does; why: the
        # reason where it does not, and what is missing where it does (the machine does not wait for the lock).
        type LockTrigger (
          kind: string,
          armed: bool,
          why: ?string
        )

        # state: noPasscode, beforeFirstUnlock, unlocked, locking, locked or lockedWithHost (locked, and trusted hosts hold
        # classes A and B open); since: when it began, RFC 3339.
        # protectedDataAvailable: false exactly while files of class A and B can't be opened.
        # firstUnlockHappened: files of class C can be opened.
        # policyForged: the policy was changed without the passcode, by somebody with the device's files;
        # the stronger values hold until it is set again. Known from the first unlock on.
        # userInactiveRemainingSeconds: until class CX goes, unless an unlock renews it.
        # triesLeft: wrong passcodes before the volume is disabled, or erased (eraseAfterTries); absent without a passcode.
        # retrySeconds: until the next passcode may be tried; absent where it may be now.
        # recoveryKit: none (none is known), unverified (none was made or opened for a year) or current; RFC 3339 times of the
        # last that was made, and of the last that was opened to see whether it can be.
        # unsyncedBytes: written and not yet durable; pendingStoreBytes: accepted and not yet stored. Absent: not known.
        # lost, denied, integrityFailures: how many since the mount; lostPaths: of the last few that were lost.
        # hosts: names of trusted hosts that are connected, once for each connection. requests: of the kernel, since the
        # mount. sequence: that of the last event.
        # locksAt: what locks the volume by itself, as far as that was wanted. manualClock: nothing
        # closes but by Advance; only volumes for tests have one. eraseInSeconds: until the volume
        # is erased, unless CancelErase or an unlock comes first. kernelCheck: whether the kernel drops
        # pages when it is told to, as each lock needs: checking, checked, failed or notChecked; only
        # with checked can the volume be unlocked. kernelCheckWhy: what failed, or why there was none.
        # format: the volume's, 1 or 2. upgrading: structures of the format before it may be left.
        type VolumeStatus (
          uuid: string,
          volume: string,
          mountpoint: string,
          state: string,
          since: string,
          passcodeSet: bool,
          protectedDataAvailable: bool,
          firstUnlockHappened: bool,
          graceSeconds: float,
          graceRemainingSeconds: ?float,
          policyForged: bool,
          userInactiveRemainingSeconds: ?float,
          triesLeft: ?int,
          retrySeconds: ?float,
          eraseAfterTries: bool,
          recoveryKit: ?string,
          recoveryKitMade: ?string,
          recoveryKitVerified: ?string,
          classes: []ClassStatus,
          unsyncedBytes: ?int,
          pendingStoreBytes: ?int,
          lost: int,
          lostPaths: []string,
          integrityFailures: int,
          denied: int,
          hosts: []string,
          requests: []RequestCount,
          transport: ?string,
          sequence: int,
          pid: int,
          version: string,
          readOnly: bool,
          manualClock: bool,
          locksAt: ?[]LockTrigger,
          eraseInSeconds: ?float,
          kernelCheck: ?string,
          kernelCheckWhy: ?string,
          format: ?int,
          upgrading: ?bool
        )


        """
}
