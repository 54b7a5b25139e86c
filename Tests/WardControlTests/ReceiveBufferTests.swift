import CWardLinux
import Glibc
import Testing
import WardSystem

@testable import WardControl

@Suite struct ReceiveBufferTests {
    /// A connected pair of sockets: bytes written to the first are received from the second.
    private final class Pair {
        let ends: [Int32]
        init() {
            var ends: [Int32] = [0, 0]
            socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends)
            self.ends = ends
        }
        func send(_ bytes: [UInt8]) { _ = write(ends[0], bytes, bytes.count) }
        deinit { for end in ends { close(end) } }
    }

    private func take(_ buffer: inout ReceiveBuffer) -> String? {
        buffer.takeMessage { String(decoding: $0, as: UTF8.self) }
    }

    @Test func messagesComeWholeAndInOrder() throws {
        let pair = Pair()
        var buffer = ReceiveBuffer()
        pair.send(Array("one\0two\0th".utf8))
        #expect(try buffer.receive(from: pair.ends[1]) == 10)
        #expect(take(&buffer) == "one")
        #expect(take(&buffer) == "two")
        #expect(take(&buffer) == nil)
        pair.send(Array("ree\0".utf8))
        #expect(try buffer.receive(from: pair.ends[1]) == 4)
        #expect(take(&buffer) == "three")
        #expect(buffer.capacityBytes == 0, "an empty buffer holds no locked memory")
    }

    @Test func byteByByte() throws {
        let pair = Pair()
        var buffer = ReceiveBuffer()
        for byte in Array("{}\0".utf8) {
            #expect(take(&buffer) == nil)
            pair.send([byte])
            #expect(try buffer.receive(from: pair.ends[1]) == 1)
        }
        #expect(take(&buffer) == "{}")
    }

    @Test func aMessageIsWipedWhenItIsDone() throws {
        let pair = Pair()
        var buffer = ReceiveBuffer()
        pair.send(Array("hunter2\0rest".utf8))
        _ = try buffer.receive(from: pair.ends[1])
        #expect(take(&buffer) == "hunter2")
        let left = buffer.withStorage { Array($0) } ?? []
        #expect(Array(left[0..<4]) == Array("rest".utf8))
        #expect(left[4...].allSatisfy { $0 == 0 }, "nothing of the message may be left")
    }

    @Test func growsToTheLimitAndNoFurther() throws {
        let pair = Pair()
        var buffer = ReceiveBuffer()
        let chunk = [UInt8](repeating: 0x78, count: 1024)
        for _ in 0..<64 {
            pair.send(chunk)
            #expect(try buffer.receive(from: pair.ends[1]) == 1024)
        }
        #expect(buffer.capacityBytes == ReceiveBuffer.maximumBytes)
        pair.send(chunk)
        var reason: Errno?
        do throws(Errno) { _ = try buffer.receive(from: pair.ends[1]) } catch { reason = error }
        #expect(reason?.rawValue == EMSGSIZE)
    }

    @Test func nothingThereIsNoEnd() {
        let pair = Pair()
        var buffer = ReceiveBuffer()
        var reason: Errno?
        do throws(Errno) { _ = try buffer.receive(from: pair.ends[1]) } catch { reason = error }
        #expect(reason?.rawValue == EAGAIN)
        #expect(buffer.capacityBytes == 0)
    }
}
