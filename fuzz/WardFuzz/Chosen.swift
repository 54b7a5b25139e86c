/// The code that libFuzzer's callback runs: a C callback has no context. Set once, before the run.
enum Chosen {
    nonisolated(unsafe) static var run: @Sendable ([UInt8]) -> Void = { _ in }
}
