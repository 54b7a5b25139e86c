import Glibc
import Testing
import WardFormat
import WardSystem

@testable import WardSimulatedStorage
@testable import WardVolume

/// Authentic ciphertext at another place or from another time: pages, files, names, records,
/// attributes. The answer must be `EIO`, or a name that is not listed, with an event.
///
/// docs/threat-model.md §10 lists all changes that are not detected. A name is bound to its
/// directory, a page to its file and its place there, an attribute to its file or directory. The
/// file that a name leads to is bound to neither.
@Suite struct MovedCiphertextTests {
    enum Answer {
        /// Refused, with an event that names the refused file.
        case seen
        /// Nothing differs.
        case ignored
        /// Accepted: exactly these paths differ, and no event tells of it.
        case unseen([String])
        /// Exactly these paths differ without an event, and something else is refused.
        case partly([String])
        /// Taken for the result of a power cut, with an event: exactly these paths differ.
        case excused([String])
        /// The volume does not open.
        case refused
    }

    struct Attack: CustomTestStringConvertible, Sendable {
        let name: String
        let afterCleanEnd: Answer
        /// The answer after an unclean end.
        let afterUncleanEnd: Answer
        let change: @Sendable (inout DiskImage, TamperedVolume) -> Void

        init(
            _ name: String, _ answer: Answer, unclean: Answer? = nil,
            _ change: @escaping @Sendable (inout DiskImage, TamperedVolume) -> Void
        ) {
            self.name = name
            afterCleanEnd = answer
            afterUncleanEnd = unclean ?? answer
            self.change = change
        }

        var testDescription: String { name }
    }

    @Test(
        "every attack, after a clean end and after an unclean one", arguments: [512, 4096],
        VolumeFormat.allCases)
    func everyAttack(pageBytes: Int, format: VolumeFormat) throws {
        let tampered = try TamperedVolume(pageBytes: pageBytes, format: format)
        for (label, pristine) in [("clean", tampered.clean), ("unclean", tampered.unclean)] {
            let before = try tampered.look(at: pristine)
            #expect(tampered.truth.compare(before.sight, before.events).unseen == [], "\(label)")
            #expect(before.events == [], "\(label)")
        }
        judge(Self.attacks, tampered)
    }

    /// Format 1 does not bind a name to its file. A program that can write to the backing store
    /// and read one directory of the mount reads everything that is open (docs/threat-model.md §10
    /// and §17).
    @Test(
        "format 1: files, directories and links exchanged across directories are not detected",
        arguments: [512, 4096])
    func acrossDirectoriesIsNotDetected(pageBytes: Int) throws {
        judge(Self.acrossDirectories, try TamperedVolume(pageBytes: pageBytes, format: .version1))
    }

    @Test(
        "format 2: files, directories and links exchanged across directories are detected",
        arguments: [512, 4096])
    func acrossDirectoriesIsDetected(pageBytes: Int) throws {
        let tampered = try TamperedVolume(pageBytes: pageBytes, format: .version2)
        judge(
            Self.acrossDirectories.map {
                // The name that a file loses looks like a removal, which is not detected.
                let isMoved = $0.name.hasPrefix("a file moved")
                return Attack($0.name, isMoved ? .partly(["/dir/inner"]) : .seen, $0.change)
            }, tampered)
    }

    /// The volume key needs no passcode. With the device's files an attacker can forge the class
    /// that new files in a directory will have (docs/threat-model.md §3).
    @Test(
        "a directory's class forged with the volume key is not detected", arguments: [512, 4096],
        VolumeFormat.allCases)
    func forgedDirectoryClassIsNotDetected(pageBytes: Int, format: VolumeFormat) throws {
        judge(
            [
                Attack("a record of class D", .unseen(["/dir"])) { image, tampered in
                    let link = tampered.record("/dir")
                    let target = String(decoding: image.inodes[link]!.target, as: UTF8.self)
                    image.inodes[link]!.target = Array(tampered.forged(target, .none).utf8)
                }
            ], try TamperedVolume(pageBytes: pageBytes, format: format))
    }

    private func judge(_ attacks: [Attack], _ tampered: TamperedVolume) {
        for attack in attacks {
            judge(tampered, attack, "\(attack.name), after a clean end", tampered.clean) {
                $0.afterCleanEnd
            }
            judge(tampered, attack, "\(attack.name), after an unclean end", tampered.unclean) {
                $0.afterUncleanEnd
            }
        }
    }

    private func judge(
        _ tampered: TamperedVolume, _ attack: Attack, _ what: String, _ pristine: DiskImage,
        _ answer: (Attack) -> Answer
    ) {
        var image = pristine
        attack.change(&image, tampered)
        let found: (sight: Sight, events: [String], healed: Int)
        do {
            found = try tampered.lookClosely(at: image)
        } catch {
            guard case .refused = answer(attack), let error = error as? VolumeOpenError else {
                Issue.record("\(what): \(error)")
                return
            }
            #expect(error.code == .damaged, "\(what): \(error)")
            #expect(error.path.hasSuffix("/.ward") || error.path.hasSuffix("/ward.state"))
            return
        }
        let (unseen, seen) = tampered.truth.compare(found.sight, found.events)
        let isFound: Bool
        do {
            isFound = try tampered.isFoundByCheck(image)
        } catch {
            Issue.record("\(what): the check: \(error)")
            return
        }
        switch answer(attack) {
        case .seen, .partly, .excused: #expect(isFound, "\(what): the check did not find it")
        case .ignored: #expect(!isFound, "\(what): the check found it, and it is nothing")
        case .unseen, .refused: break
        }
        let different = Set(unseen.map { String($0.prefix { $0 != ":" }) }).sorted()
        switch answer(attack) {
        case .seen:
            #expect(unseen == [], "\(what)")
            #expect(!seen.isEmpty, "\(what): nobody saw it")
        case .ignored:
            #expect(unseen == [] && seen == [], "\(what)")
        case .unseen(let paths):
            #expect(different == paths.sorted() && seen == [], "\(what): \(unseen) \(seen)")
            #expect(found.healed == 0, "\(what)")
        case .partly(let paths):
            #expect(different == paths.sorted() && !seen.isEmpty, "\(what): \(unseen) \(seen)")
        case .excused(let paths):
            #expect(different == paths.sorted() && seen == [], "\(what): \(unseen) \(seen)")
            #expect(found.healed > 0, "\(what): accepted without a word")
        case .refused: Issue.record("\(what): the volume was opened")
        }
    }

    // MARK: The attacks

    private static let attacks: [Attack] = pages + files + names + metadata + root

    /// An attack that changes the pages of one file.
    private static func pages(
        _ name: String, _ path: String, _ answer: Answer, unclean: Answer? = nil,
        _ body: @escaping @Sendable (inout [[UInt8]], TamperedVolume) -> Void
    ) -> Attack {
        Attack("\(path): \(name)", answer, unclean: unclean) { image, tampered in
            let identity = tampered.identity(path)
            let size = tampered.layout.pageBytes
            let bytes = image.bytes(of: identity)
            // The hint that follows the last page is left out.
            var pages = (0..<(bytes.count / size)).map {
                Array(bytes[($0 * size)..<(($0 + 1) * size)])
            }
            body(&pages, tampered)
            image.setBytes(of: identity, pages.flatMap { $0 })
        }
    }

    private static func page(
        _ number: Int, of path: String, in image: DiskImage, _ tampered: TamperedVolume
    ) -> [UInt8] {
        let size = tampered.layout.pageBytes
        return Array(
            image.bytes(of: tampered.identity(path))[(number * size)..<((number + 1) * size)])
    }

    private static let plain = ["/plain", "/second name"]

    private static let pages: [Attack] = {
        var all: [Attack] = []
        // Pages written before the doubtful epoch are as safe after an unclean end as after a clean
        // one.
        for (path, excused) in [("/plain", Answer?.none), ("/doubtful", .excused(["/doubtful"]))] {
            all += [
                pages("nothing but the hint", path, .ignored) { _, _ in },
                pages("pages 1 and 2 swapped", path, .seen) { pages, _ in pages.swapAt(1, 2) },
                pages("pages 0 and 1 swapped", path, .seen) { pages, _ in pages.swapAt(0, 1) },
                pages("page 1 twice", path, .seen) { pages, _ in pages[2] = pages[1] },
                pages("a page inserted", path, .seen) { pages, _ in pages.insert(pages[1], at: 1) },
                pages("a page taken out", path, .seen) { pages, _ in pages.remove(at: 1) },
                pages("another file's page 1", path, .seen) { pages, tampered in
                    pages[1] = page(1, of: "/a", in: tampered.clean, tampered)
                },
                pages("another file's page 0", path, .seen) { pages, tampered in
                    pages[0] = page(0, of: "/a", in: tampered.clean, tampered)
                },
                pages("another file's header", path, .seen) { pages, tampered in
                    let other = page(0, of: "/a", in: tampered.clean, tampered)
                    pages[0].replaceSubrange(0..<256, with: other[0..<256])
                },
                pages("two pages left", path, .seen, unclean: excused) { pages, _ in
                    pages.removeLast()
                },
                pages("one page left", path, .seen, unclean: excused) { pages, _ in
                    pages.removeLast(2)
                },
                pages("cut inside the last page", path, .seen, unclean: excused) { pages, _ in
                    pages[2].removeLast(7)
                },
                pages("cut inside page 0", path, .seen) { pages, _ in
                    pages = [Array(pages[0].dropLast(7))]
                },
                pages("cut inside the header", path, .seen) { pages, _ in
                    pages = [Array(pages[0].prefix(100))]
                },
                pages("page 1 zeroed", path, .seen, unclean: excused) { pages, _ in
                    pages[1] = [UInt8](repeating: 0, count: pages[1].count)
                },
                pages("the last page zeroed", path, .seen, unclean: excused) { pages, _ in
                    pages[2] = [UInt8](repeating: 0, count: pages[2].count)
                },
                pages("the first half of page 1 zeroed", path, .seen) { pages, _ in
                    pages[1].replaceSubrange(0..<256, with: [UInt8](repeating: 0, count: 256))
                },
                pages("the record of page 0 zeroed", path, .seen, unclean: excused) { pages, _ in
                    let count = pages[0].count - 256
                    pages[0].replaceSubrange(256..., with: [UInt8](repeating: 0, count: count))
                },
                pages("page 0 zeroed", path, .seen, unclean: excused) { pages, _ in
                    pages[0] = [UInt8](repeating: 0, count: pages[0].count)
                },
                pages("a page of noise after the last", path, .seen) { pages, _ in
                    pages.append([UInt8](repeating: 0x5A, count: pages[0].count))
                },
                pages("zero pages after the last", path, .ignored) { pages, _ in
                    pages += [[UInt8]](
                        repeating: [UInt8](repeating: 0, count: pages[0].count), count: 3)
                },
                pages("its first page after the last", path, .seen) { pages, _ in
                    pages.append(pages[0])
                },
            ]
        }
        return all + [
            pages("an older page 1", "/plain", .unseen(plain)) { pages, tampered in
                pages[1] = page(1, of: "/plain", in: tampered.older, tampered)
            },
            pages("its header of when it was in a weaker class", "/c", .unseen(["/c"])) {
                pages, tampered in
                let older = page(0, of: "/c", in: tampered.older, tampered)
                pages[0].replaceSubrange(0..<256, with: older[0..<256])
            },
            pages("an older page 1 at another place", "/plain", .seen) { pages, tampered in
                pages[2] = page(1, of: "/plain", in: tampered.older, tampered)
            },
            pages("a page of a sparse file zeroed", "/sparse", .unseen(["/sparse"])) { pages, _ in
                pages[2] = [UInt8](repeating: 0, count: pages[2].count)
            },
            pages("the first page of a sparse file zeroed", "/sparse", .seen) { pages, _ in
                pages[0] = [UInt8](repeating: 0, count: pages[0].count)
            },
            pages("the record of a sparse file's first page zeroed", "/sparse", .seen) { pages, _ in
                pages[0].replaceSubrange(
                    256..., with: [UInt8](repeating: 0, count: pages[0].count - 256))
            },
            pages("the last page of a sparse file zeroed", "/sparse", .seen) { pages, _ in
                pages[5] = [UInt8](repeating: 0, count: pages[5].count)
            },
            pages("a sparse file cut in a hole", "/sparse", .seen) { pages, _ in
                pages.removeLast(2)
            },
            pages("a hole filled", "/sparse", .seen) { pages, _ in pages[1] = pages[2] },
            pages("an empty file's header", "/b", .unseen(["/b"])) {
                pages, tampered in
                let empty = page(0, of: "/empty a", in: tampered.clean, tampered)
                pages[0].replaceSubrange(0..<256, with: empty[0..<256])
            },
        ]
    }()

    private static func attack(
        _ name: String, _ answer: Answer, unclean: Answer? = nil,
        _ body: @escaping @Sendable (inout DiskImage, TamperedVolume) -> Void
    ) -> Attack { Attack(name, answer, unclean: unclean, body) }

    private static let files: [Attack] = [
        attack("a whole older file", .unseen(plain)) { image, tampered in
            let identity = tampered.identity("/plain")
            image.inodes[identity]!.content = tampered.older.inodes[identity]!.content
        },
        attack("a file as it was in a weaker class", .unseen(["/c"])) { image, tampered in
            let identity = tampered.identity("/c")
            image.inodes[identity]!.content = tampered.older.inodes[identity]!.content
        },
        attack("a file emptied", .unseen(plain)) { image, tampered in
            image.setBytes(of: tampered.identity("/plain"), [])
        },
        attack("a file zeroed", .unseen(plain)) { image, tampered in
            let identity = tampered.identity("/plain")
            let count = image.inodes[identity]!.content.size
            image.setBytes(of: identity, [UInt8](repeating: 0, count: count))
        },
        attack("a file with attributes emptied", .unseen(["/a"])) {
            $0.setBytes(of: $1.identity("/a"), [])
        },
        attack("the contents of two files exchanged", .unseen(["/one"] + plain)) {
            image, tampered in
            let (one, other) = (tampered.identity("/one"), tampered.identity("/plain"))
            let content = image.inodes[one]!.content
            image.inodes[one]!.content = image.inodes[other]!.content
            image.inodes[other]!.content = content
        },
        attack(
            "the contents of two files with attributes exchanged", .partly(["/a", "/note"]),
            unclean: .excused(["/a", "/note"])
        ) { image, tampered in
            let (one, other) = (tampered.identity("/a"), tampered.identity("/note"))
            let content = image.inodes[one]!.content
            image.inodes[one]!.content = image.inodes[other]!.content
            image.inodes[other]!.content = content
        },
        attack("a mode changed", .unseen(["/one"])) { image, tampered in
            image.inodes[tampered.identity("/one")]!.mode = S_IFREG | 0o4755
        },
        attack("a FIFO in a file's place", .unseen(["/one"])) { image, tampered in
            image.inodes[tampered.identity("/one")]!.mode = S_IFIFO | 0o644
        },
        attack("a directory in a file's place", .seen) { image, tampered in
            image.inodes[tampered.identity("/one")]!.mode = S_IFDIR | 0o755
        },
        attack("a file in a link's place", .unseen(["/link"])) { image, tampered in
            image.point(tampered, "/link", to: "/plain")
        },
        attack("a link in a file's place", .unseen(["/one"])) { image, tampered in
            image.point(tampered, "/one", to: "/link")
        },
    ]

    private static let names: [Attack] = [
        attack("two names exchanged", .unseen(["/c", "/one"])) { image, tampered in
            let one = tampered.identity("/one")
            image.point(tampered, "/one", to: "/c")
            image.inodes[1]!.entries[tampered.storedName("/c")] = one
        },
        attack("a name that leads to another file", .unseen(["/one"])) { image, tampered in
            image.point(tampered, "/one", to: "/plain")
        },
        attack(
            "two directories exchanged",
            .unseen([
                "/dir", "/dir/inner", "/sibling", "/sibling/inner",
                "/dir/deep/" + TamperedVolume.long, "/sibling/deep/" + TamperedVolume.long,
            ])
        ) { image, tampered in
            let one = tampered.identity("/dir")
            image.point(tampered, "/dir", to: "/sibling")
            image.inodes[1]!.entries[tampered.storedName("/sibling")] = one
        },
        attack("a file removed", .unseen(["/one"])) { image, tampered in
            image.inodes[1]!.entries[tampered.storedName("/one")] = nil
        },
        // A stored name is valid only in its directory. In another one it is foreign, and its own
        // directory looks as after a removal, which is not detected. Under a name of the other
        // directory it is accepted (`acrossDirectories`).
        attack("a stored name moved to another directory", .unseen(["/dir/inner"])) {
            image, tampered in
            image.moveStoredName(tampered)
        },
        attack("the same, and a name that is nobody's left in its own", .seen) { image, tampered in
            let file = image.moveStoredName(tampered)
            image.inodes[tampered.identity("/dir")]!.entries[Array("stray".utf8)] = file
        },
        attack("the links of two long names exchanged", .seen) { image, tampered in
            let one = tampered.longLink("/" + TamperedVolume.long)
            let other = tampered.longLink("/" + TamperedVolume.otherLong)
            let target = image.inodes[one]!.target
            image.inodes[one]!.target = image.inodes[other]!.target
            image.inodes[other]!.target = target
        },
        attack("the link of a long name removed", .seen) { image, tampered in
            let name = tampered.storedName("/" + TamperedVolume.long)
            image.inodes[1]!.entries[Array(".n".utf8) + name.dropFirst()] = nil
        },
        attack("the targets of two links exchanged", .unseen(["/link", "/other link"])) {
            image, tampered in
            let (one, other) = (tampered.identity("/link"), tampered.identity("/other link"))
            let target = image.inodes[one]!.target
            image.inodes[one]!.target = image.inodes[other]!.target
            image.inodes[other]!.target = target
        },
    ]

    private static let acrossDirectories: [Attack] = [
        attack("two files exchanged", .unseen(["/one", "/dir/inner"])) { image, tampered in
            image.exchange(tampered, "/one", "/dir/inner")
        },
        attack("two directories exchanged", .unseen(deepFiles)) { image, tampered in
            image.exchange(tampered, "/dir/deep", "/sibling/deep")
        },
        attack("two links exchanged", .unseen(["/link", "/marked/link"])) { image, tampered in
            image.exchange(tampered, "/link", "/marked/link")
        },
        attack("another directory's file under a name, as a hard link", .unseen(["/marked/inner"]))
        {
            image, tampered in
            let name = tampered.storedName("/marked/inner", in: "/marked")
            image.inodes[tampered.identity("/marked")]!.entries[name] =
                tampered.identity("/dir/inner")
        },
        attack(
            "a file moved over a name of another directory",
            .unseen(["/marked/inner", "/dir/inner"])
        ) { image, tampered in
            let name = tampered.storedName("/marked/inner", in: "/marked")
            let old = tampered.storedName("/dir/inner", in: "/dir")
            let file = image.inodes[tampered.identity("/dir")]!.entries.removeValue(forKey: old)!
            image.inodes[tampered.identity("/marked")]!.entries[name] = file
        },
    ]

    private static let deepFiles = [
        "/dir/deep/" + TamperedVolume.long, "/sibling/deep/" + TamperedVolume.long,
    ]

    private static let metadata: [Attack] = [
        attack("the records of two directories exchanged", .seen) { image, tampered in
            let (one, other) = (tampered.record("/dir"), tampered.record("/sibling"))
            let target = image.inodes[one]!.target
            image.inodes[one]!.target = image.inodes[other]!.target
            image.inodes[other]!.target = target
        },
        attack("another directory's record", .seen) { image, tampered in
            image.inodes[tampered.record("/dir")]!.target =
                image.inodes[tampered.record("/sibling")]!.target
        },
        attack("a record removed", .seen) { image, tampered in
            image.inodes[tampered.identity("/dir")]!.entries[Array(".ward".utf8)] = nil
        },
        attack("a record cut off", .seen) { image, tampered in
            image.inodes[tampered.record("/dir")]!.target.removeLast()
        },
        attack("a directory's older record", .unseen(["/dir"])) { image, tampered in
            let name = Array(".ward".utf8)
            let directory = tampered.identity("/dir")
            let old = tampered.older.inodes[directory]!.entries[name]!
            let now = image.inodes[directory]!.entries[name]!
            image.inodes[now]!.target = tampered.older.inodes[old]!.target
        },
        attack(
            "two attributes of a file exchanged", .seen, unclean: .excused(["/a"])
        ) { image, tampered in
            image.exchangeAttributes(tampered.identity("/a"), tampered.identity("/a"))
        },
        attack(
            "attributes of two files exchanged", .seen, unclean: .excused(["/a", "/note"])
        ) { image, tampered in
            image.exchangeAttributes(tampered.identity("/a"), tampered.identity("/note"))
        },
        attack("attributes of two directories exchanged", .seen) { image, tampered in
            image.exchangeAttributes(tampered.identity("/dir"), tampered.identity("/sibling"))
        },
        attack("attributes of a file cut off", .seen, unclean: .excused(["/note"])) {
            image, tampered in
            let identity = tampered.identity("/note")
            for name in image.inodes[identity]!.attributes.keys {
                image.inodes[identity]!.attributes[name]!.removeLast(25)
            }
        },
        attack("an older attribute", .unseen(["/note"])) { image, tampered in
            let identity = tampered.identity("/note")
            image.inodes[identity]!.attributes = tampered.older.inodes[identity]!.attributes
        },
        attack("an attribute removed", .unseen(["/note"])) { image, tampered in
            image.inodes[tampered.identity("/note")]!.attributes = [:]
        },
    ]

    private static let root: [Attack] = [
        attack("the root's record removed", .refused) { image, _ in
            image.inodes[1]!.entries[Array(".ward".utf8)] = nil
        },
        attack("a directory's record for the root's", .refused) { image, tampered in
            let name = Array(".ward".utf8)
            image.inodes[image.inodes[1]!.entries[name]!]!.target =
                image.inodes[tampered.record("/dir")]!.target
        },
        attack("the state record cut off", .refused) { image, _ in
            let state = image.inodes[1]!.entries[Array("ward.state".utf8)]!
            image.setBytes(of: state, Array(image.bytes(of: state).dropLast()))
        },
        attack("the state record emptied", .refused) { image, _ in
            image.setBytes(of: image.inodes[1]!.entries[Array("ward.state".utf8)]!, [])
        },
        attack(
            "an older state record, from when the volume was in use, and a later page zeroed", .seen
        ) {
            image, tampered in
            image.restoreStateRecord(tampered)
            image.zeroPage(1, of: "/plain", tampered)
        },
        attack(
            "an older state record, from when the volume was in use, and a page of then zeroed",
            .excused(["/b"])
        ) { image, tampered in
            image.restoreStateRecord(tampered)
            image.zeroPage(1, of: "/b", tampered)
        },
    ]
}

extension TamperedVolume {
    /// The result of `look`, and the number of findings that were excused.
    fileprivate func lookClosely(
        at image: DiskImage
    ) throws -> (sight: Sight, events: [String], healed: Int) {
        let volume = try CrashVolume(keys, on: SimulatedDisk(image))
        let sight = Sight(volume, expecting: truth)
        return (sight, volume.events.problems, volume.events.healed)
    }

    /// The stored name of something in a directory.
    fileprivate func storedName(_ path: String, in directory: String = "/") -> [UInt8] {
        let identity = identity(path)
        return clean.inodes[self.identity(directory)]!.entries.first { $0.value == identity }!.key
    }

    /// The inode of the directory's record.
    fileprivate func record(_ path: String) -> UInt64 {
        clean.inodes[identity(path)]!.entries[Array(".ward".utf8)]!
    }

    /// The target of a directory's record with another class, as a holder of the volume key can
    /// make it.
    fileprivate func forged(_ target: String, _ protectionClass: ProtectionClass) -> String {
        do {
            let derived = try VolumeKeys(
                volumeKey: CrashKeys.secret(keys.volumeKey), format: keys.format)
            let parentID = derived.parentID(derived.rootID)
            var record = try DirectoryRecord(
                linkTarget: target, macKey: derived.records, parentID: parentID)
            record.protectionClass = protectionClass
            return record.linkTarget(macKey: derived.records, parentID: parentID)
        } catch {
            preconditionFailure("\(error)")
        }
    }

    fileprivate func longLink(_ path: String) -> UInt64 {
        clean.inodes[1]!.entries[Array(".n".utf8) + storedName(path).dropFirst()]!
    }
}

extension DiskImage {
    fileprivate mutating func restoreStateRecord(_ tampered: TamperedVolume) {
        let name = Array("ward.state".utf8)
        let old = tampered.olderInUse
        setBytes(of: inodes[1]!.entries[name]!, old.bytes(of: old.inodes[1]!.entries[name]!))
    }

    fileprivate mutating func zeroPage(_ page: Int, of path: String, _ tampered: TamperedVolume) {
        let size = tampered.layout.pageBytes
        let identity = tampered.identity(path)
        var bytes = bytes(of: identity)
        bytes.replaceSubrange(
            (page * size)..<((page + 1) * size), with: [UInt8](repeating: 0, count: size))
        setBytes(of: identity, bytes)
    }

    /// Makes a name in the root lead to another file, as a hard link.
    fileprivate mutating func point(_ tampered: TamperedVolume, _ path: String, to other: String) {
        inodes[1]!.entries[tampered.storedName(path)] = tampered.identity(other)
    }

    /// Moves the stored name of `/dir/inner` from `/dir` to `/marked`. Returns the inode it leads
    /// to.
    @discardableResult
    fileprivate mutating func moveStoredName(_ tampered: TamperedVolume) -> UInt64 {
        let name = tampered.storedName("/dir/inner", in: "/dir")
        let file = inodes[tampered.identity("/dir")]!.entries.removeValue(forKey: name)!
        inodes[tampered.identity("/marked")]!.entries[name] = file
        return file
    }

    /// Exchanges the files of two names, in any directories.
    fileprivate mutating func exchange(_ tampered: TamperedVolume, _ one: String, _ other: String) {
        for (path, target) in [(one, other), (other, one)] {
            let end = path.lastIndex(of: "/")!
            let parent = end == path.startIndex ? "/" : String(path[..<end])
            let name = tampered.storedName(path, in: parent)
            inodes[tampered.identity(parent)]!.entries[name] = tampered.identity(target)
        }
    }

    /// Exchanges attributes of two files, or two attributes of one file.
    fileprivate mutating func exchangeAttributes(_ one: UInt64, _ other: UInt64) {
        func sealed(_ identity: UInt64) -> [String] {
            inodes[identity]!.attributes.keys.filter { $0.hasPrefix("user.w.") }.sorted()
        }
        let first = sealed(one).first { one == other || sealed(other).contains($0) }!
        let second = one == other ? sealed(one).first { $0 != first }! : first
        let value = inodes[one]!.attributes[first]!
        inodes[one]!.attributes[first] = inodes[other]!.attributes[second]
        inodes[other]!.attributes[second] = value
    }
}
