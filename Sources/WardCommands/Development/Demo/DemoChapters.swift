import Glibc
import WardConsole
import WardControl
import WardSystem

/// The chapters of the demo. Paths are short: the working directory is the demo's own.
struct DemoChapters {
    let world: DemoWorld
    let hasGit: Bool
    let hasSQLite: Bool
    let photographs: [[UInt8]]
    /// A class A file and a class B file that stay open through all chapters.
    var openDiary: OwnedDescriptorBox?
    var openLetter: OwnedDescriptorBox?

    static let diary = "files/diary/today.txt"
    static let letter = "files/inbox/letter-1.txt"
    static let alarm = "files/alarm.txt"
    static let contacts = "files/contacts.db"

    init(world: DemoWorld) {
        self.world = world
        hasGit = world.has("git")
        hasSQLite = world.has("sqlite3")
        photographs = [1, 2, 3].map { DemoFile.photograph(seed: $0, megabytes: 3) }
    }

    mutating func tellAll() throws(DemoStop) {
        try makeVolume()
        try putFiles()
        try lookAtTheDisk()
        try lock()
        try graceIsOver()
        try wrongPasscode()
        try unlock()
        try reboot()
        try comeBack()
        try leave()
    }

    // MARK: Chapters

    private func makeVolume() throws(DemoStop) {
        let narrator = world.narrator
        narrator.say("ward keeps files encrypted on disk and decides, by class and lock state, who")
        narrator.say(
            "may read them now. This happens in \(world.root), which is removed at the end.")
        narrator.chapter(1, "A volume is a directory of ciphertext")
        try world.begin("make a volume")
        try write("correct horse\n", to: "passcode")
        try write("battery staple\n", to: "wrong-passcode")
        narrator.say(
            "   A passcode that costs next to nothing marks a volume for tests, which only may have"
        )
        narrator.say("   a clock that is moved by hand (--manual-clock): nobody has to wait here.")
        try world.run([
            "ward", "init", "volume", "--passcode-file", "passcode", "--passcode-cost", "1024",
            "--quiet",
        ])
        narrator.say(
            "   Mounted, it is an ordinary directory.")
        try world.begin("mount the volume")
        try world.run(["ward", "mount", "volume", "files", "--grace", "10", "--manual-clock"])
        try world.begin("unlock for the first time")
        try world.run(["ward", "unlock", "files", "--passcode-file", "passcode"])
    }

    private mutating func putFiles() throws(DemoStop) {
        let narrator = world.narrator
        narrator.chapter(2, "Real files, one class for each kind")
        try world.begin("make directories of every class")
        for (directory, letter) in [("diary", "A"), ("inbox", "B"), ("photos", "CX")] {
            if mkdir("files/" + directory, 0o755) != 0 {
                throw failed("mkdir", Errno(rawValue: errno))
            }
            try world.run(["ward", "class", "set", letter, "files/" + directory])
        }
        let text = DemoFile.marker
        try write("Dear diary, \(text).\n", to: DemoChapters.diary)
        try write("A letter: \(text).\n", to: DemoChapters.letter)
        try write("07:00 \(text)\n", to: DemoChapters.alarm)
        try world.run(["ward", "class", "set", "D", DemoChapters.alarm])
        for (index, photograph) in photographs.enumerated() {
            try perform("write a photograph") { () throws(Errno) in
                try DemoFile.write(photograph, to: "files/photos/\(index + 1).jpg")
            }
        }
        narrator.good("three photographs of 3 MB")
        if hasGit {
            try world.begin("make a git repository")
            try world.run(["git", "-C", "files/diary", "init", "-q", "-b", "main"])
            try git("add", ".")
            try git("commit", "-q", "-m", "The first day")
        } else {
            narrator.say("   (git is not installed: its part is left out)")
        }
        try world.begin("make a database")
        if hasSQLite {
            try world.run([
                "sqlite3", DemoChapters.contacts,
                "PRAGMA journal_mode=WAL; CREATE TABLE people(name); "
                    + "INSERT INTO people VALUES('Ada'),('Grace'),('\(text)');",
            ])
        } else {
            try write("Ada, Grace, \(text)\n", to: DemoChapters.contacts)
            narrator.say("   (sqlite3 is not installed: contacts.db is a text file)")
        }
        try world.begin("list classes")
        try world.run(["ward", "ls", "files"])
        openDiary = try open(DemoChapters.diary)
        openLetter = try open(DemoChapters.letter)
        narrator.good("a program keeps \(DemoChapters.diary) and \(DemoChapters.letter) open")
    }

    private func lookAtTheDisk() throws(DemoStop) {
        let narrator = world.narrator
        narrator.chapter(3, "What the disk sees")
        try world.begin("look at the backing directory")
        try world.run(["ls", "volume"])
        narrator.say("   Every file above holds the words \(DemoFile.marker). On the disk:")
        let search = DemoSearch.search("volume", for: DemoFile.marker)
        try world.check(
            search.bytes > 9 << 20,
            "searched \(Text.count(search.files, "file")), \(search.bytes >> 20) MB")
        try world.check(search.hits.isEmpty, "the words are nowhere, neither in contents nor names")
        try world.run(["grep", "-r", "-l", "-a", DemoFile.marker, "volume"], expecting: 1)
        let names = DemoSearch.search("volume", for: "diary")
        try world.check(names.hits.isEmpty, "the name \"diary\" is nowhere either")
    }

    private func lock() throws(DemoStop) {
        let narrator = world.narrator
        narrator.chapter(4, "Lock: for ten seconds everything goes on")
        try world.begin("lock")
        try world.run(["ward", "lock", "files"])
        try readable(DemoChapters.diary, "A", "the grace period lets programs finish")
        narrator.say("   Ten seconds pass (the clock is moved by hand):")
        try world.begin("let the grace period pass")
        try world.run(["ward", "advance", "files", "10s"])
    }

    private func graceIsOver() throws(DemoStop) {
        let narrator = world.narrator
        narrator.chapter(5, "Locked: each class has its own answer")
        try world.begin("class A while locked")
        try world.run(["cat", DemoChapters.diary], expecting: 1)
        try refused(DemoChapters.diary, "A", "opening it")
        if let openDiary {
            try world.check(
                DemoFile.read(openDiary.rawValue) == .failure(.notPermitted),
                "A  \(DemoChapters.diary), opened before the lock: reading answers EPERM too")
        }
        try world.check(
            creating("files/diary/tonight.txt") == .notPermitted
                && access("files/diary/tonight.txt", F_OK) != 0,
            "A  a new file: EPERM, and no name is left behind")
        if hasGit {
            try world.run(["git", "-C", "files/diary", "log", "--oneline"], expecting: nil)
        }
        try world.begin("class B while locked")
        if let openLetter {
            try world.check(
                append(" P.S. written while locked.\n", to: openLetter.rawValue),
                "B  \(DemoChapters.letter), opened before the lock: can still be written")
        }
        try refused(DemoChapters.letter, "B", "opening it once more")
        try perform("create a class B file") { () throws(Errno) in
            try DemoFile.write("Arrived while locked.\n", to: "files/inbox/letter-2.txt")
        }
        narrator.good("B  files/inbox/letter-2.txt: a new file can be made and written")
        try refused("files/inbox/letter-2.txt", "B", "reading it after it was closed")
        try world.begin("classes C, CX and D while locked")
        try database("C", "was unlocked once since the mount: readable")
        try world.check(
            DemoFile.holds(photographs[0], "files/photos/1.jpg"),
            "CX files/photos/1.jpg: readable for a time after an unlock")
        try readable(DemoChapters.alarm, "D", "always")
        narrator.say(
            "   Names, sizes and times can be seen in every state; reading is another matter:")
        try world.run(["ward", "ls", "files/inbox"])
        try world.run(["ward", "events", "files", "--last", "3"])
    }

    private func wrongPasscode() throws(DemoStop) {
        world.narrator.chapter(6, "The wrong passcode opens nothing")
        try world.begin("try a wrong passcode")
        try world.run(
            ["ward", "unlock", "files", "--passcode-file", "wrong-passcode"],
            expecting: ExitStatus.wrongPasscode.rawValue)
        try refused(DemoChapters.diary, "A", "opening it")
    }

    private func unlock() throws(DemoStop) {
        world.narrator.chapter(7, "Unlock: everything is back")
        try world.begin("unlock")
        try world.run(["ward", "unlock", "files", "--passcode-file", "passcode"])
        try everythingIsBack()
        if let openDiary {
            try world.check(
                (try? DemoFile.read(openDiary.rawValue).get())?.hasPrefix("Dear diary") == true,
                "A  \(DemoChapters.diary): the old descriptor works again without reopening")
        }
        try world.check(
            DemoFile.read("files/inbox/letter-2.txt") == .success("Arrived while locked.\n"),
            "B  files/inbox/letter-2.txt: what was written while locked is there")
        try world.check(
            (try? DemoFile.read(DemoChapters.letter).get())?.contains("P.S.") == true,
            "B  \(DemoChapters.letter): so is what was added to the open file")
    }

    private func reboot() throws(DemoStop) {
        world.narrator.chapter(8, "Reboot: before the first unlock only class D is open")
        try world.begin("reboot")
        try world.run(["ward", "reboot", "files"])
        try refused(DemoChapters.diary, "A", "opening it")
        try refused(DemoChapters.letter, "B", "opening it")
        if let openLetter {
            try world.check(
                DemoFile.read(openLetter.rawValue) == .failure(.notPermitted),
                "B  \(DemoChapters.letter), still open: EPERM too, a boot closes everything")
        }
        try refused(DemoChapters.contacts, "C", "opening it")
        try refused("files/photos/1.jpg", "CX", "opening it")
        try readable(DemoChapters.alarm, "D", "always")
        try world.run(["ward", "status", "files"])
    }

    private mutating func comeBack() throws(DemoStop) {
        world.narrator.chapter(9, "The first unlock")
        try world.begin("unlock after the reboot")
        try world.run(["ward", "unlock", "files", "--passcode-file", "passcode"])
        try everythingIsBack()
        openDiary = nil
        openLetter = nil
    }

    private func leave() throws(DemoStop) {
        world.narrator.chapter(10, "Unmount, and once more from the disk alone")
        try world.begin("unmount")
        try world.run(["ward", "unmount", "files"])
        try world.check(access(DemoChapters.alarm, F_OK) != 0, "files is an empty directory again")
        try world.begin("mount again")
        try world.run(["ward", "mount", "volume", "files", "--passcode-file", "passcode"])
        try everythingIsBack()
        try world.begin("unmount at the end")
        try world.run(["ward", "unmount", "files"])
    }
}

/// Lets a copyable value hold a descriptor.
final class OwnedDescriptorBox {
    private let descriptor: OwnedDescriptor
    var rawValue: Int32 { descriptor.rawValue }
    init(_ descriptor: consuming OwnedDescriptor) { self.descriptor = descriptor }
}
