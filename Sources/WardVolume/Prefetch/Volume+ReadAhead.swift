import WardSystem

// Notes what programs do, which tells what they will ask for next.
extension Volume {
    /// Returns `directoryState` for a program that comes to a directory, and notes whether it
    /// waited.
    func enter(_ node: Node) throws(Errno) -> DirectoryState {
        if let known = node.directory { return known }
        let (state, waited) = try store.ahead.time { () throws(Errno) in
            try backing.directoryState(of: node)
        }
        if let waited { noteUse(.directories, of: node, waited) }
        return state
    }

    /// Calls `acquire` for a program that opens a file, and notes whether it waited.
    func acquireForProgram(
        _ node: Node, _ context: WorkerContext
    ) throws(Errno) -> (file: OpenFile, wasNew: Bool, lastPageOffset: Int) {
        let (acquired, waited) = try store.ahead.time { () throws(Errno) in
            try acquire(node, context)
        }
        if let waited, acquired.wasNew { noteUse(.files, of: node, waited) }
        return acquired
    }

    private func noteUse(_ kind: TreeReadAhead.Kind, of node: Node, _ waited: UInt64) {
        guard let parent = node.link?.parent else { return }
        store.ahead.note(
            kind, node.inode, in: parent.inode, below: parent.link?.parent.inode, waited: waited
        ) {
            // Only a descriptor that is open already: this must not ask the backing store.
            parent.directory?.openDescriptor
        }
    }
}
