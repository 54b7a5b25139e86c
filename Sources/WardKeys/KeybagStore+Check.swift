extension KeybagStore {
    /// What is wrong with the keybag or its copy, by path; changes nothing. Opening a `KeybagStore`
    /// puts it right.
    ///
    /// Throws what opening throws where neither of the two can be used.
    public static func problems(
        volumePath: String, stateRoot: String
    ) throws(KeybagError) -> [(path: String, problem: String)] {
        try KeybagLoader(
            volumePath: volumePath, stateRoot: stateRoot, storage: DiskKeyStorage(),
            clock: .system, acceptsOlderGeneration: false
        ).problems()
    }
}
