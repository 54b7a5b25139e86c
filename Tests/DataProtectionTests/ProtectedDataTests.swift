import DataProtection
import Testing
import WardTestSupport

@testable import DataProtectionLinux

extension DataProtectionSuite {
    /// The lock state and its notifications (rows L1, L4 and L8 of semantics.md).
    @Suite(.forOrdinaryUser) struct ProtectedDataTests {
        @Test("L8: isAvailable, for each class, first unlock and passcode in every state")
        func states() throws {
            try MountedVolume.walk { volume, state, fileClass in
                let data = ProtectedData(at: volume.url("not there"))
                #expect(data.snapshot == nil, "a path that leads nowhere is on no volume")
                for place in [
                    ProtectedData(at: volume.url("")), ProtectedData(at: volume.url(".")),
                ] {
                    #expect(place.snapshot?.state == state.told)
                    #expect(place.isAvailable == state.opens(.complete), "\(state)")
                    #expect(
                        place.isAvailable(for: fileClass.type) == state.opens(fileClass),
                        "\(fileClass.letter) in \(state)")
                    #expect(
                        place.hasBeenUnlockedSinceBoot
                            == state.opens(.completeUntilFirstUserAuthentication))
                    #expect(place.isPasscodeSet == (state != .noPasscode))
                }
            }
        }

        /// Reads events up to the one that `isLast` accepts. Returns all of them.
        private func events(
            _ iterator: inout AsyncStream<ProtectedData.Event>.Iterator,
            until isLast: (ProtectedData.Event) -> Bool
        ) async -> [ProtectedData.Event] {
            var seen: [ProtectedData.Event] = []
            while let event = await iterator.next() {
                seen.append(event)
                if isLast(event) { break }
            }
            return seen
        }

        @Test(
            "events: what holds first, then lock, expiry, unlock, reboot and passcodes",
            .timeLimit(.minutes(10)))
        func events() async throws {
            let volume = try MountedVolume.mine()
            let data = ProtectedData(at: volume.url(""))
            var iterator = data.events.makeAsyncIterator()
            let first = try #require(await iterator.next())
            #expect(first.kind == .began)
            #expect(first.snapshot == data.snapshot)

            try volume.lock()
            var seen = await events(&iterator) { $0.kind == .willBecomeUnavailable }
            #expect(seen.last?.remaining == .seconds(10))
            #expect(seen.last?.snapshot?.state == .locking)
            #expect(seen.last?.snapshot?.isAvailable == true)
            try volume.advance(seconds: 10)
            seen = await events(&iterator) {
                $0.kind == .didBecomeUnavailable && $0.protection == .completeUnlessOpen
            }
            #expect(
                seen.contains { $0.kind == .didBecomeUnavailable && $0.protection == .complete })
            // In no event do state and classes contradict each other.
            #expect(
                seen.allSatisfy {
                    ($0.snapshot?.state == .locking) == ($0.snapshot?.isAvailable == true)
                })
            #expect(seen.last?.snapshot == data.snapshot)
            #expect(seen.last?.snapshot?.hasBeenUnlockedSinceBoot == true)

            try volume.advance(seconds: 25 * 3600)
            seen = await events(&iterator) { $0.kind == .didBecomeUnavailable }
            #expect(seen.last?.protection == .completeWhenUserInactive)

            try volume.unlock()
            seen = await events(&iterator) { $0.protection == .completeWhenUserInactive }
            #expect(seen.last?.kind == .didBecomeAvailable)
            #expect(seen.last?.snapshot == data.snapshot)

            try volume.reboot()
            seen = await events(&iterator) { $0.protection == .completeWhenUserInactive }
            #expect(seen.last?.snapshot?.availableClasses == [FileProtectionType.none])
            #expect(seen.last?.snapshot?.hasBeenUnlockedSinceBoot == false)

            try volume.unlock()
            try volume.ward(
                "passcode", "remove", volume.mountPoint, "--passcode-file", volume.passcodeFile)
            seen = await events(&iterator) { $0.kind == .passcodeChanged }
            #expect(seen.last?.snapshot?.isPasscodeSet == false)
        }

        @Test(
            "register first, then look: nothing is missed, however the two race",
            .timeLimit(.minutes(10)))
        func noRace() async throws {
            let volume = try MountedVolume.mine()
            let data = ProtectedData(at: volume.url(""))
            for _ in 0..<10 {
                try volume.unlock()
                let events = data.events
                nonisolated(unsafe) let locked = volume
                async let locking: Void = Task.detached { try locked.lockNow() }.value
                // The loop ends with both answers of this call.
                _ = data.isAvailable
                for await event in events where event.snapshot?.isAvailable == false { break }
                try await locking
                #expect(!data.isAvailable)
            }
        }

        @Test(
            "several readers share one connection; it ends with the last", .timeLimit(.minutes(10)))
        func sharing() async throws {
            let volume = try MountedVolume.mine()
            let data = ProtectedData(at: volume.url(""))
            do {
                var first = data.events.makeAsyncIterator()
                var second = data.events.makeAsyncIterator()
                #expect(await first.next()?.kind == .began)
                #expect(await second.next()?.kind == .began)
                #expect(try connections(volume) == 1)
                try volume.lockNow()
                for var iterator in [first, second] {
                    _ = await events(&iterator) { $0.snapshot?.isAvailable == false }
                }
                let third = await data.events.first { _ in true }
                #expect(third?.snapshot?.state == .locked)
            }
            #expect(
                try await eventually { try connections(volume) == 0 }, "the connections end")
        }

        /// The number of connections to the control socket, unix(7): accepted sockets bear the
        /// listener's name.
        private func connections(_ volume: MountedVolume) throws -> Int {
            let socket = try #require(volume.socketPath())
            let table = TestEnvironment.contents(ofKernelFile: "/proc/net/unix")
            return table.split(separator: "\n").count { $0.hasSuffix(" " + socket) } - 1
        }

        @Test(
            "the daemon dies and comes back: ended, began, and events go on",
            .timeLimit(.minutes(10)))
        func reconnecting() async throws {
            let volume = try MountedVolume.mine()
            let data = ProtectedData(at: volume.url(""))
            var iterator = data.events.makeAsyncIterator()
            #expect(await iterator.next()?.snapshot?.isAvailable == true)
            try volume.kill()
            var seen = await events(&iterator) { $0.kind == .ended }
            #expect(seen.last?.snapshot == nil)
            #expect(!data.isAvailable)
            try volume.mount()
            seen = await events(&iterator) { $0.kind == .began }
            #expect(seen.last?.snapshot?.state == .beforeFirstUnlock)
            try volume.unlock()
            seen = await events(&iterator) { $0.snapshot?.isAvailable == true }
            try volume.unmount()
            seen = await events(&iterator) { $0.kind == .ended }
            try volume.mount()
            seen = await events(&iterator) { $0.kind == .began }
        }

        @Test(
            "performWhenAvailable: at once, after the unlock, not at all when cancelled",
            .timeLimit(.minutes(10)))
        func performing() async throws {
            let volume = try MountedVolume.mine()
            let data = ProtectedData(at: volume.url(""))
            #expect(try await data.performWhenAvailable { 1 } == 1)
            try volume.enter(.locked)
            #expect(
                try await data.performWhenAvailable(for: .completeUntilFirstUserAuthentication) {
                    2
                } == 2)
            let url = volume.url("f")
            let writing = Task {
                try await data.performWhenAvailable {
                    try Data("x".utf8).write(to: url, options: .completeFileProtection)
                }
            }
            let cancelled = Task { try await data.performWhenAvailable { 3 } }
            cancelled.cancel()
            await #expect(throws: CancellationError.self) { try await cancelled.value }
            #expect(try volume.names() == [])
            try volume.unlock()
            try await writing.value
            #expect(try volume.protection("f") == .complete)
            await #expect(throws: CocoaError.self) {
                try await data.performWhenAvailable { throw CocoaError(.fileNoSuchFile) }
            }
        }

        @Test(
            "notifications have UIKit's names, and come as UIKit posts them",
            .timeLimit(.minutes(10)))
        func notifications() async throws {
            #expect(
                ProtectedData.protectedDataWillBecomeUnavailableNotification.rawValue
                    == "UIApplicationProtectedDataWillBecomeUnavailable")
            #expect(
                ProtectedData.protectedDataDidBecomeAvailableNotification.rawValue
                    == "UIApplicationProtectedDataDidBecomeAvailable")
            let volume = try MountedVolume.mine()
            let data = ProtectedData(at: volume.url(""))
            let center = NotificationCenter()
            let (stream, continuation) = AsyncStream.makeStream(of: String.self)
            for name in [
                ProtectedData.protectedDataWillBecomeUnavailableNotification,
                ProtectedData.protectedDataDidBecomeAvailableNotification,
            ] {
                _ = center.addObserver(forName: name, object: nil, queue: nil) {
                    continuation.yield($0.name.rawValue)
                }
            }
            var iterator = stream.makeAsyncIterator()
            let posting = data.postNotifications(to: center)
            // Until the posting has begun, a change would only be a part of its first state.
            _ = await data.events.first { _ in true }
            let will = "UIApplicationProtectedDataWillBecomeUnavailable"
            let did = "UIApplicationProtectedDataDidBecomeAvailable"
            try volume.lock()
            #expect(await iterator.next() == will)
            // In the grace period everything can still be read, and an unlock cancels the lock.
            #expect(data.isAvailable)
            try volume.unlock()
            #expect(await iterator.next() == did)
            try volume.enter(.locked)
            #expect(await iterator.next() == will)
            try volume.unlock()
            #expect(await iterator.next() == did)
            try volume.reboot()
            #expect(await iterator.next() == will)
            try volume.unlock()
            #expect(await iterator.next() == did)
            posting.cancel()
            try volume.lockNow()
            continuation.finish()
            let more = await iterator.next()
            #expect(more == nil)
        }

        @Test("which notification an event is worth: each is followed by the other")
        func announcing() {
            func snapshot(_ state: ProtectedData.State) -> ProtectedData.Snapshot {
                ProtectedData.Snapshot(
                    state: state, isPasscodeSet: true,
                    availableClasses: state == .unlocked || state == .locking
                        ? Set(FileClass.allCases.map(\.type)) : [FileProtectionType.none])
            }
            var announcer = ProtectedData.Announcer()
            let will = ProtectedData.protectedDataWillBecomeUnavailableNotification
            let did = ProtectedData.protectedDataDidBecomeAvailableNotification
            let steps: [(ProtectedData.Snapshot?, Notification.Name?)] = [
                (snapshot(.beforeFirstUnlock), nil), (snapshot(.unlocked), did),
                (snapshot(.unlocked), nil), (snapshot(.locking), will),
                (snapshot(.locked), nil), (nil, nil), (snapshot(.unlocked), did), (nil, will),
                (snapshot(.beforeFirstUnlock), nil),
            ]
            for (snapshot, expected) in steps {
                #expect(announcer.announce(.init(.stateChanged, snapshot)) == expected)
            }
        }

        @Test("shared is the volume of $WARD_TEST_VOLUME, else of the home directory")
        func shared() throws {
            #expect(
                ProtectedData.shared.url.path
                    == ProcessInfo.processInfo.environment["WARD_TEST_VOLUME"]
                    ?? Foundation::NSHomeDirectory())
        }
    }
}
