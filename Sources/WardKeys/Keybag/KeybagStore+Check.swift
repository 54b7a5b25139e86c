extension KeybagStore {
    /// The faults of the keybag and its copy, by path; changes nothing. Opening a `KeybagStore`
    /// repairs them.
    ///
    /// Where neither can be used, throws the errors of opening.
    public static func problems(
        volumePath: String, stateRoot: String
    ) throws(KeybagError) -> [(path: String, problem: String)] {
        try KeybagLoader(
            volumePath: volumePath, stateRoot: stateRoot, storage: DiskKeyStorage(),
            clock: .system, acceptsOlderGeneration: false
        ).problems()
    }
}
