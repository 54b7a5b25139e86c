extension Int {
    /// The sum of two sizes in bytes, or the largest number if they overflow: a sparse file may
    /// have any size.
    public func clampedSum(_ other: Int) -> Int {
        let (sum, isOver) = addingReportingOverflow(other)
        return isOver ? .max : sum
    }
}
