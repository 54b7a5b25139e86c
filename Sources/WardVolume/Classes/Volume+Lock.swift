import Glibc
import WardFormat
import WardKeys
import WardSystem

// Locking and unlocking classes.
extension Volume {
    /// Locks these classes. The gate goes to closing, and the kernel writes mapped pages back and
    /// drops them. Then the gate closes, requests drain, and class keys, file keys and buffers are
    /// wiped.
    ///
    /// Runs on a thread that serves no requests. Open files of classes in `keepOpenFiles` (B at a
    /// lock) keep their keys until their last close. Returns within about `deadline`. If the kernel
    /// could not write its pages back in time, the keys are wiped even so. The report then says
    /// that the connection must be aborted.
    ///
    /// A later `admit` or `abandonEviction` makes this eviction void: it then touches neither gate
    /// nor keys.
    public func evict(
        _ classes: ProtectionClassSet, keepOpenFiles: ProtectionClassSet, deadline: Duration
    ) -> EvictionReport {
        beginEviction(of: classes, keepOpenFiles: keepOpenFiles, deadline: deadline).run()
    }

    /// Begins the eviction that `evict` describes, and makes earlier ones void. `run` does the
    /// rest, on any thread. The thread that decides about locks calls this, so that an eviction
    /// that runs late never undoes a later unlock. The deadline counts from here.
    public func beginEviction(
        of classes: ProtectionClassSet, keepOpenFiles: ProtectionClassSet, deadline: Duration
    ) -> Eviction {
        Eviction(
            self, of: classes, keepOpenFiles: keepOpenFiles,
            until: SystemClock.monotonic() + deadline)
    }

    /// Replaces an eviction that does not return: closes the gate and wipes the keys without
    /// waiting. Should the eviction return later, it can touch neither.
    public func abandonEviction(
        of classes: ProtectionClassSet, keepOpenFiles: ProtectionClassSet
    ) {
        let now = SystemClock.monotonic()
        Eviction(self, of: classes, keepOpenFiles: keepOpenFiles, until: now).runWithoutWaiting()
    }

    /// Wipes the keys and content that `abandonEviction` left in the contexts of busy workers.
    public func wipeThreads(patience: Duration) {
        _ = gate.contexts.wipe(until: SystemClock.monotonic() + patience)
    }

    /// Makes the kernel write back and drop all pages of a node, as a lock does.
    public func dropPages(of node: NodeID) { kernel?.invalidateContent(of: node) }

    /// Classes whose files can be opened now. A class whose key has just come is included only
    /// after `admit`.
    public var available: ProtectionClassSet {
        gate.classes.open.intersection(gate.keyring.available)
    }

    /// Opens the gate for classes whose keys are now in the keyring. Does no work per file (row
    /// L4). Right after a lock it waits for the drops that the lock began (`PageDrops`), for a
    /// moment at most.
    public func admit(_ classes: ProtectionClassSet) {
        let eviction = gate.evictions.begin()
        gate.drops.open(classes) {
            gate.evictions.step(of: eviction) {
                for protectionClass in classes.classes {
                    gate.classes.set(.open, for: protectionClass)
                }
            }
        }
        refusals.letGo()
        if let capsules = gate.capsules, classes.contains(.a), !isReadOnly {
            background.add { capsules.begin() }
        }
    }

    /// Whether the kernel may hold mapped pages of these classes that it has not written back.
    public func mayHaveDirtyPages(in classes: ProtectionClassSet) -> Bool {
        var isMapped = false
        nodes.open.forEachFile(of: classes) {
            if $0.uses.mappableHandles.load(ordering: .relaxed) > 0 { isMapped = true }
        }
        return isMapped
    }
}
