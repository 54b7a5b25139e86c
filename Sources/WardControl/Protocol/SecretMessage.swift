import WardSystem

/// A call with secret parameters, written into locked memory and wiped with it.
struct SecretMessage: ~Copyable {
    private var buffer: SecretBytes
    private var count = 0
    private var isFirst = true

    /// Begins the message. The secrets together have `capacity` bytes, before escaping. The other
    /// parameters, the object `plain`, come first. If `more`, the call takes several answers.
    init(
        method: String, capacity: Int, plain: JSONValue = .object([]), more: Bool = false,
        path: String
    ) throws(ControlError) {
        // The members without the object's braces.
        let members = String(decoding: plain.bytes.dropFirst().dropLast(), as: UTF8.self)
        do throws(Errno) {
            buffer = try SecretBytes(
                zeroed: 256 + method.utf8.count + members.utf8.count + 6 * capacity)
        } catch {
            throw ControlError(.system(error), path: path, "no memory can be locked for a secret")
        }
        put(#"{"method":"\#(method)","# + (more ? #""more":true,"# : "") + #""parameters":{"#)
        put(members)
        isFirst = members.isEmpty
    }

    mutating func append(_ name: String, _ secret: borrowing SecretBytes) {
        put(isFirst ? #""\#(name)":""# : #","\#(name)":""#)
        isFirst = false
        var at = count
        buffer.withUnsafeMutableBytes { out in
            secret.withUnsafeBytes { bytes in
                for byte in bytes {
                    JSONValue.appendEscaped(byte) {
                        out[at] = $0
                        at += 1
                    }
                }
            }
        }
        count = at
        put("\"")
    }

    mutating func finish() {
        put("}}\0")
    }

    borrowing func withBytes<E: Error>(
        _ body: (UnsafeRawBufferPointer) throws(E) -> Void
    ) throws(E) {
        try buffer.withUnsafeBytes { (bytes) throws(E) in
            try body(UnsafeRawBufferPointer(rebasing: bytes[0..<count]))
        }
    }

    private mutating func put(_ text: String) {
        let at = count
        buffer.withUnsafeMutableBytes { out in
            for (index, byte) in text.utf8.enumerated() { out[at + index] = byte }
        }
        count += text.utf8.count
    }
}
