import WardConsole
import WardSimulation

@testable import WardCommands
@testable import WardControl

/// Messages on the control socket, in both directions, and their JSON.
let controlParsers: [Parser] = [
    Parser(name: "json") { bytes in
        guard let value = taken({ () throws(JSONError) in try JSONParser.parse(bytes) }) else {
            return
        }
        for text in [value.bytes, Array(value.text(pretty: true).utf8)] {
            let again = taken { () throws(JSONError) in try JSONParser.parse(text) }
            require(again == value, "JSON changes")
        }
        keepSecrets(bytes)
    },
    Parser(name: "control-messages", maximumBytes: 2048) { ControlConversation.hold($0) },
    Parser(name: "control-answers") { bytes in
        guard let value = taken({ () throws(JSONError) in try JSONParser.parse(bytes) }) else {
            return
        }
        readStatus(value)
        if let event = ControlEvent(json: value) {
            require(ControlEvent(json: event.json) == event, "an event changes")
            _ = EventText.render(event, Style(descriptor: -1))
            _ = EventText.brief(event)
            requirePrintable(EventText.details(event))
        }
        if let report = HolderReport(json: value) {
            require(HolderReport(json: report.json) == report, "a report of holders changes")
        }
        if let host = HostStatus(json: value) {
            require(HostStatus(json: host.json) == host, "a trusted host changes")
        }
        if let name = value["error"]?.stringValue,
            let error = VolumeError(
                qualifiedName: name, parameters: value["parameters"] ?? .object([]))
        {
            let again = VolumeError(
                qualifiedName: VolumeInterface.qualified(error.name), parameters: error.parameters)
            require(again == error, "an error changes")
        }
        if let mounted = MountedVolume(json: value) {
            require(MountedVolume(json: mounted.json) == mounted, "a mounted volume changes")
        }
    },
    Parser(name: "simulator-messages") { bytes in
        guard let value = taken({ () throws(JSONError) in try JSONParser.parse(bytes) }) else {
            return
        }
        _ = SimulatorRequest(json: value)
        if let mount = SimulatedMount(json: value) {
            require(SimulatedMount(json: mount.json) == mount, "a simulated mount changes")
        }
        if let audit = Audit(json: value) {
            require(
                Audit(json: audit.json)?.json.bytes == audit.json.bytes, "an audit changes")
        }
    },
]

/// Strings of secret members must be in locked memory only: not in the parsed text, and not in the
/// value.
private func keepSecrets(_ bytes: [UInt8]) {
    let members: Set<String> = ["passcode", "secret"]
    var text = bytes
    let value = text.withUnsafeMutableBytes { text in
        taken { () throws(JSONError) in
            try JSONParser.parse(text, secretMembers: members, maximumValues: 1000)
        }
    }
    guard let value else { return }
    var secrets: [[UInt8]] = []
    var others: [[UInt8]] = []
    collect(value, &secrets, &others)
    for secret in secrets where isTelling(secret) {
        // The input may have the same text in another place.
        guard !others.contains(where: { contains($0, secret) }) else { continue }
        require(!contains(text, secret), "a secret is left in the text")
        require(!contains(value.bytes, secret), "a secret is written")
    }
}

/// Whether a secret is long, has letters only, and has a letter that no number, `true`, `false` or
/// `null` has. Where such text is found, it is in a string.
private func isTelling(_ secret: [UInt8]) -> Bool {
    secret.count >= 4
        && secret.allSatisfy { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains($0 | 0x20) }
        && secret.contains { (UInt8(ascii: "g")...UInt8(ascii: "k")).contains($0 | 0x20) }
}

private func collect(_ value: JSONValue, _ secrets: inout [[UInt8]], _ others: inout [[UInt8]]) {
    switch value {
    case .secret(let secret): secrets.append(secret.bytes.withUnsafeBytes { [UInt8]($0) })
    case .string(let text): others.append(Array(text.utf8))
    case .array(let values): for value in values { collect(value, &secrets, &others) }
    case .object(let members):
        for member in members {
            others.append(Array(member.key.utf8))
            collect(member.value, &secrets, &others)
        }
    default: break
    }
}

private func contains(_ bytes: [UInt8], _ part: [UInt8]) -> Bool {
    guard bytes.count >= part.count else { return false }
    return (0...(bytes.count - part.count)).contains {
        bytes[$0..<$0 + part.count].elementsEqual(part)
    }
}

/// Text for people must not control their terminal.
func requirePrintable(_ text: String) {
    let harmful = text.unicodeScalars.first {
        $0.value < 0x20 || (0x7F...0x9F).contains($0.value)
    }
    require(harmful == nil, "a control character reaches the terminal")
}

private func readStatus(_ value: JSONValue) {
    guard let status = VolumeStatus(json: value) else { return }
    require(VolumeStatus(json: status.json) == status, "a status changes")
    _ = StatusText.render(status, Style(descriptor: -1))
}
