import Testing
import WardSystem

@Suite struct TransferMemoryTests {
    @Test("there is room for what can be had, and none for what is larger than any address space")
    func room() {
        #expect(TransferMemory.hasRoom(for: 1 << 20))
        #expect(!TransferMemory.hasRoom(for: 1 << 60))
        #expect(!TransferMemory.hasRoom(for: .max))
    }
}
