import CMemorySearch
import CWardLinux
import Foundation

/// The secrets to search for, by name, in every form that they may have in memory.
///
/// A key is searched in pieces of 8 bytes, because a saved register holds no more. Each piece is
/// searched as it is, and as SHA-256 and HMAC use it. They exclusive-or it with their pads, and
/// swap the bytes of words. By chance 8 given bytes are in 100 MB once in some 10¹¹ scans.
struct SecretPatterns {
    private(set) var names: [String] = []
    private var numbers: [String: Int] = [:]
    /// The first 8 bytes of a pattern (little endian), and the numbers of its names.
    private(set) var pieces: [UInt64: [Int]] = [:]

    /// Adds a secret of random bytes, a multiple of 8 of them, in every form.
    mutating func add(_ name: String, _ secret: [UInt8]) {
        precondition(secret.count % 8 == 0 && secret.count > 0)
        let shapes: [(String, (UInt8) -> UInt8)] = [
            ("", { $0 }), (" ^ inner pad", { $0 ^ 0x36 }), (" ^ outer pad", { $0 ^ 0x5c }),
        ]
        for (shape, change) in shapes {
            let changed = secret.map(change)
            add(exactly: name + shape, changed)
            add(exactly: name + shape + ", swapped", SecretPatterns.swapped(changed))
        }
    }

    /// Adds text: every 8 characters that begin at a multiple of 4, in every form.
    mutating func add(text name: String, _ text: String) {
        let bytes = Array(text.utf8)
        precondition(bytes.count >= 12)
        for start in stride(from: 0, through: bytes.count - 8, by: 4) {
            add(name, Array(bytes[start..<start + 8]))
        }
    }

    /// Adds bytes as they are, in pieces of 8. Pieces that any data could be (zeros, addresses) are
    /// left out.
    mutating func add(exactly name: String, _ bytes: [UInt8]) {
        let number = number(of: name)
        for start in stride(from: 0, through: bytes.count - 8, by: 8) {
            let piece = bytes[start..<start + 8]
            guard Set(piece).count >= 5, piece.suffix(2) != [0, 0] else { continue }
            let value = piece.reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
            if pieces[value]?.contains(number) != true { pieces[value, default: []].append(number) }
        }
    }

    /// Adds a key of AES-256 and everything that BoringSSL makes of it here. That is a key schedule
    /// for each direction, and the context of AES-GCM with the table of its hash key.
    mutating func add(aes name: String, _ key: [UInt8]) {
        precondition(key.count == 32)
        add(name, key)
        for (direction, expand) in [
            ("encryption", CCryptoBoringSSL_AES_set_encrypt_key),
            ("decryption", CCryptoBoringSSL_AES_set_decrypt_key),
        ] {
            var schedule = ward_aes_key()
            _ = expand(key, 256, &schedule)
            add(
                exactly: name + ", schedule for " + direction,
                withUnsafeBytes(of: &schedule) { Array($0) })
        }
        var context = ward_aead_ctx()
        let aead = CCryptoBoringSSL_EVP_aead_aes_256_gcm()
        precondition(CCryptoBoringSSL_EVP_AEAD_CTX_init(&context, aead, key, 32, 16, nil) == 1)
        add(exactly: name + ", cipher context", withUnsafeBytes(of: &context) { Array($0) })
        CCryptoBoringSSL_EVP_AEAD_CTX_cleanup(&context)
    }

    /// Adds a number of Curve25519, as bytes and as the five limbs of 51 bits that arithmetic uses.
    mutating func add(curve name: String, _ number: [UInt8]) {
        precondition(number.count == 32)
        add(name, number)
        for limb in 0..<5 {
            var value: UInt64 = 0
            for bit in 0..<51 where limb * 51 + bit < 255 {
                let position = limb * 51 + bit
                value |= UInt64(number[position / 8] >> UInt8(position % 8) & 1) << UInt64(bit)
            }
            add(limb: name + ", limb", value)
        }
    }

    private mutating func add(limb name: String, _ value: UInt64) {
        let number = number(of: name)
        pieces[value, default: []].append(number)
    }

    private mutating func number(of name: String) -> Int {
        if let known = numbers[name] { return known }
        numbers[name] = names.count
        names.append(name)
        return names.count - 1
    }

    /// 32-bit words in the other byte order, as SHA-256 works with them.
    private static func swapped(_ bytes: [UInt8]) -> [UInt8] {
        stride(from: 0, to: bytes.count, by: 4).flatMap { bytes[$0..<$0 + 4].reversed() }
    }

    mutating func formUnion(_ other: SecretPatterns) {
        for (value, numbers) in other.pieces {
            for number in numbers {
                let mine = self.number(of: other.names[number])
                if pieces[value]?.contains(mine) != true { pieces[value, default: []].append(mine) }
            }
        }
    }

    func union(_ other: SecretPatterns) -> SecretPatterns {
        var result = self
        result.formUnion(other)
        return result
    }
}

/// A piece of a secret that was found.
struct Finding {
    let name: String
    /// The mapping's name or its kind.
    let place: String
    let address: UInt
    /// Whether it lies in the memory made for secrets.
    let isInSecretMemory: Bool
}

/// Searches for all `patterns` at every byte of every writable page and in the registers of a
/// process.
struct MemoryScan {
    private(set) var findings: [Finding] = []
    private(set) var scannedBytes = 0
    private let patterns: SecretPatterns
    /// One bit for each value of the first 16 bits of a pattern; it rules out nearly every place.
    private var filter = [UInt8](repeating: 0, count: 1 << 13)

    /// A scan after threads have wiped what they were just using, as they do before they sleep.
    /// Repeats for a second while it has a wrong finding.
    static func settled(
        _ patterns: SecretPatterns, of process: pid_t, _ isWrong: (Finding) -> Bool
    ) throws -> MemoryScan {
        var scan = try MemoryScan(patterns, of: process)
        _ = try comesTrue(within: 1) {
            guard scan.findings.contains(where: isWrong) else { return true }
            scan = try MemoryScan(patterns, of: process)
            return false
        }
        return scan
    }

    init(_ patterns: SecretPatterns, of process: pid_t, registers: Bool = true) throws {
        self.patterns = patterns
        for value in patterns.pieces.keys {
            filter[Int(value & 0xFFFF) / 8] |= 1 << UInt8(value & 7)
        }
        // Most of memory is zeros, and no pattern begins with them.
        filter[0] &= ~1
        let memory = ProcessMemory(process: process)
        let stacks = memory.stackPointers()
        for region in try memory.regions() where region.isWorthReading {
            let owner = stacks.first { region.start <= $0.pointer && $0.pointer < region.end }
            let kind =
                region.isSecret
                ? "secret memory" : owner.map { "stack of \($0.thread)" } ?? "memory"
            let place =
                region.name.isEmpty ? "\(kind) \(String(region.start, radix: 16))" : region.name
            var found: [Finding] = []
            var count = 0
            try memory.forEachRun(of: region) { start, bytes in
                count += bytes.count
                forEachMatch(in: bytes) { name, offset in
                    found.append(
                        Finding(
                            name: name, place: place, address: start + UInt(offset),
                            isInSecretMemory: region.isSecret))
                }
            }
            findings += found
            scannedBytes += count
        }
        guard registers else { return }
        for (thread, bytes) in try memory.registers() {
            scannedBytes += bytes.count
            var found: [Finding] = []
            bytes.withUnsafeBytes {
                forEachMatch(in: $0) { name, offset in
                    found.append(
                        Finding(
                            name: name, place: "registers of \(thread)", address: UInt(offset),
                            isInSecretMemory: false))
                }
            }
            findings += found
        }
    }

    private func forEachMatch(
        in bytes: UnsafeRawBufferPointer, _ body: (String, Int) -> Void
    ) {
        guard let base = bytes.baseAddress else { return }
        let typed = base.assumingMemoryBound(to: UInt8.self)
        filter.withUnsafeBufferPointer { filter in
            var at = 0
            while true {
                at = memory_search_next(typed, bytes.count, at, filter.baseAddress!)
                if at == bytes.count { return }
                let value = UInt64(littleEndian: (base + at).loadUnaligned(as: UInt64.self))
                for number in patterns.pieces[value] ?? [] { body(patterns.names[number], at) }
                at += 1
            }
        }
    }

    /// Findings in places where no secret may ever be.
    var inOrdinaryMemory: [Finding] { findings.filter { !$0.isInSecretMemory } }
    /// Names of the findings in the memory for secrets.
    var namesInSecretMemory: Set<String> {
        Set(findings.filter(\.isInSecretMemory).map(\.name))
    }

    /// For the message of a failed expectation: name, place, number.
    static func text(_ findings: [Finding]) -> String {
        var counts: [String: Int] = [:]
        for finding in findings { counts["\(finding.name) in \(finding.place)", default: 0] += 1 }
        let lines = counts.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)" }
        return "\(findings.count) pieces\n" + lines.prefix(60).joined(separator: "\n")
    }
}
