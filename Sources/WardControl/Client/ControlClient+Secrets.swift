import WardSystem

/// Calls with secrets, whose messages stay in locked memory.
extension ControlClient {
    func call(
        _ method: ControlMethod, secrets name: String, _ secret: borrowing SecretBytes,
        beside plain: JSONValue = .object([])
    ) throws(ControlError) -> JSONValue {
        var message = try SecretMessage(
            method: method.qualifiedName, capacity: secret.count, plain: plain,
            path: socketPath)
        message.append(name, secret)
        try finish(&message)
        return try readAnswer().parameters
    }

    func call(
        _ method: ControlMethod, secrets firstName: String, _ first: borrowing SecretBytes,
        _ secondName: String, _ second: borrowing SecretBytes, beside plain: JSONValue = .object([])
    ) throws(ControlError) -> JSONValue {
        var message = try SecretMessage(
            method: method.qualifiedName, capacity: first.count + second.count,
            plain: plain, path: socketPath)
        message.append(firstName, first)
        message.append(secondName, second)
        try finish(&message)
        return try readAnswer().parameters
    }

    func finish(_ message: inout SecretMessage) throws(ControlError) {
        message.finish()
        try message.withBytes { (bytes) throws(ControlError) in try write(bytes) }
    }
}
