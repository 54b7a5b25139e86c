/// What libFuzzer's callback runs, which can carry nothing with it. Set once, before anything runs.
enum Chosen {
    nonisolated(unsafe) static var run: @Sendable ([UInt8]) -> Void = { _ in }
}
