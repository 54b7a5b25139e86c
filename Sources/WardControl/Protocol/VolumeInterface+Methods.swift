extension VolumeInterface {
    /// The methods.
    static let methods = """
        method Status() -> (status: VolumeStatus)

        # Locks: at once with now, else after the grace period. With now it returns when nothing of class A is readable.
        # reason: why, for those who look at the events. While trusted hosts are connected the state is lockedWithHost, and A
        # and B stay open until the last of them ends; with endHosts their connections are ended first, and for
        # half a minute, or until an unlock, none is taken.
        method Lock(now: ?bool, reason: ?string, endHosts: ?bool) -> (state: string)

        method Unlock(passcode: string) -> (state: string)

        # Back to before first unlock, as a boot would, without unmounting.
        method Reboot() -> (state: string)

        method SetPasscode(passcode: string) -> ()

        # hostsRemoved: names of hosts that are not trusted any more.
        method ChangePasscode(current: string, passcode: string) -> (hostsRemoved: []string)

        method RemovePasscode(current: string) -> (hostsRemoved: []string)

        # Moves the clock of a volume mounted with --manual-clock; returns when everything that fell due is done.
        method Advance(seconds: float) -> (state: string)

        # Has a volume mounted with --manual-clock run out of space, or get space again: what needs room in the store fails
        # with ENOSPC.
        method SetFull(full: bool) -> ()

        # Ends the mount; with force also while programs use it.
        method Unmount(force: ?bool) -> ()

        # Needs "more": the last events, then each as it happens, until the mount ends. With follow false it answers
        # what there is, and an answer without an event is the last.
        #
        # With signals true there is an event for each class besides those of the volume, not remembered: protectionClass
        # says which, kind is willBecomeUnavailable, didBecomeUnavailable or didBecomeAvailable, at a lock and unlock, a
        # reboot and when CX expires. protectionClass leaves only what concerns that class: its signals, its denials, and
        # firstUnlock, reboot and unmounting.
        #
        # With status true the first answer, before any event, is the status. No change is missed between the two: what
        # the status shows already may be told again, and after the last event status and events agree.
        method Monitor(
          last: ?int, follow: ?bool, signals: ?bool, protectionClass: ?string, status: ?bool
        ) -> (event: ?Event, status: ?VolumeStatus)

        # Who has files open, of all classes or one. It vetoes nothing. unreadable: processes that the daemon may not look
        # at; unattributed: open files with no process found for them (a descriptor on its way through a socket, or one of
        # those processes); complete: false where not everything could be looked at in time; leftOut: more than an answer
        # takes.
        method Holders(protectionClass: ?string) -> (
          holders: []Holder, unreadable: int, unattributed: int, complete: bool, leftOut: int
        )

        # What is left out stays as it is. Needs the current passcode where one is set.
        method SetPolicy(
          current: ?string, graceSeconds: ?float, userInactiveSeconds: ?float, eraseAfterTries: ?bool
        ) -> ()

        # Reads again what this device knows of recovery kits: ward recovery create and verify call it.
        method ReadRecovery() -> ()

        # Destroys the effaceable key, so that nothing on this device opens the volume again, and ends the mount. Only
        # where uuid is the volume's. At once with the passcode; a wrong one counts as a try.
        # Without it the volume is locked at once, erased after eraseInSeconds, and until then
        # CancelErase or an unlock takes it back.
        method Erase(uuid: string, passcode: ?string) -> (eraseInSeconds: ?float)

        # Takes an erase back that was announced. cancelled: whether there was one.
        method CancelErase() -> (cancelled: bool)

        # Trusts a host, while unlocked. host: its ID, 32 hexadecimal digits; secret: what it will present, 64 of them.
        method TrustAdd(name: string, host: string, passcode: string, secret: string) -> ()

        # Needs "more". Opens classes A and B for as long as this connection stands, however the volume is locked; not before
        # the first unlock. The first answer has name and state; the last, where the daemon ends it, why.
        method TrustConnect(host: string, secret: string) -> (
          name: ?string, state: ?string, ended: ?string
        )

        method TrustList() -> (hosts: []TrustedHost)

        # What the host has is worthless from now on, and its connections end.
        method TrustRemove(name: string) -> ()

        # Needs "more": answers once when everything written so far is durable; from then on, and as long as the connection
        # lasts, changes of the keybag (passcode, policy) wait, though no longer than 30 s each, and the epoch of the state
        # record stays, though no longer than an hour. Nothing else is held, and no lock is ever delayed.
        method Backup() -> ()

        # Needs "more": looks at everything in the volume, with repair puts right what it finds. Answers with progress and
        # findings as they come, and with the report at its end; it ends with the connection, too. One at a time.
        method Check(repair: ?bool) -> (
          progress: ?CheckProgress, finding: ?CheckFinding, report: ?CheckReport
        )


        """
}
