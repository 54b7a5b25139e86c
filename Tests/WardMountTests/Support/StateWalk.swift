import Testing

/// Takes volumes through all states, and calls a row's check for each class in each state.
struct StateWalk {
    let user: User

    /// The content of the file `f` in each class's directory.
    static func content(_ fileClass: FileClass) -> String { "content of \(fileClass.letter)" }

    /// Runs `prepare` while everything is open (S0 or S2), then `check` for every state and class.
    ///
    /// Each class has a directory named by its letter, with a file `f`. At the end the volume is
    /// unlocked and `finish` runs.
    func run(
        prepare: (Probe, FileClass) throws -> Void = { _, _ in },
        check: (Probe, LockState, FileClass) throws -> Void,
        finish: (Probe, FileClass) throws -> Void = { _, _ in }
    ) throws {
        for passcode in [nil, MountedVolume.passcode] {
            let volume = try MountedVolume(as: user, passcode: passcode)
            let probe = try volume.probe()
            for fileClass in FileClass.allCases {
                try Self.makeDirectory(of: fileClass, with: probe)
                try prepare(probe, fileClass)
            }
            if passcode == nil {
                // A lock changes nothing in S0.
                try volume.ward("lock", volume.mountPoint, "--now")
                try volume.advance(seconds: 11)
            }
            for state in passcode == nil ? [.noPasscode] : LockState.walk {
                try volume.enter(state)
                for fileClass in FileClass.allCases { try check(probe, state, fileClass) }
            }
            if passcode != nil { try volume.enter(.unlocked) }
            for fileClass in FileClass.allCases { try finish(probe, fileClass) }
        }
    }

    /// Makes such a directory for each class.
    static func makeDirectories(with probe: Probe) throws {
        for fileClass in FileClass.allCases { try makeDirectory(of: fileClass, with: probe) }
    }

    /// Makes a directory that gives its files a class, with the file `f` in it.
    static func makeDirectory(of fileClass: FileClass, with probe: Probe) throws {
        let name = fileClass.letter
        try #require(probe.mkdir(name) == .ok)
        try #require(probe.setClass(name, fileClass.rawValue) == .ok)
        try #require(probe.writeFile("\(name)/f", content(fileClass)) == .ok)
        try #require(probe.protectionClass("\(name)/f") == .data(fileClass.apple))
    }
}
