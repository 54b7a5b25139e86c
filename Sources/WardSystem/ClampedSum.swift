extension Int {
    /// The sum of two sizes in bytes, or the largest number there is: a sparse file may say any
    /// size, and so may the next one.
    public func clampedSum(_ other: Int) -> Int {
        let (sum, isOver) = addingReportingOverflow(other)
        return isOver ? .max : sum
    }
}
