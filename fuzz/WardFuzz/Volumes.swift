/// Requests of the kernel, sent to a new volume for each input (`RequestPlayer`).
let volumeParsers: [Parser] = [
    Parser(name: "kernel-requests", maximumBytes: 2048) { bytes in
        guard let volume = try? FuzzVolume() else { fatalError("no volume can be made") }
        RequestPlayer(volume).play(bytes)
        volume.checkEverything()
        volume.remove()
    },
    /// A stored name, a link's target or an attribute's value, as they are on disk.
    Parser(name: "stored-names", maximumBytes: 400) { bytes in StoredNames.read(bytes) },
]
