@testable import WardContainers

/// Bytes from Xcode's projects, and from directories that programs may write to.
let containerParsers: [Parser] = [
    Parser(name: "entitlements", maximumBytes: 8192) { bytes in
        let read = taken { () throws(EntitlementsError) in try Entitlements(propertyList: bytes) }
        guard let read else { return }
        require(read.groups.count <= Entitlements.maximumGroups, "too many groups")
        // Accepted entitlements can be built from their parts again.
        let again = taken { () throws(EntitlementsError) in
            try Entitlements(
                dataProtection: read.dataProtection, groups: read.groups.map(\.text),
                team: read.team)
        }
        require(again == read, "entitlements change: \(read)")
    },
    Parser(name: "container-records") { bytes in
        if let record = taken({ () throws(ContainerRecord.Damage) in
            try ContainerRecord(parsing: bytes)
        }) {
            // The input may have groups and modes in any order.
            let written = ContainerRecord(
                id: record.id, kind: record.kind, classAtCreation: record.classAtCreation,
                entitlement: record.entitlement, groups: record.groups,
                backgroundModes: record.backgroundModes, team: record.team, created: record.created)
            let again = taken { () throws(ContainerRecord.Damage) in
                try ContainerRecord(parsing: written.bytes)
            }
            require(again == written, "a container's record changes: \(record)")
        }
        let text = String(decoding: bytes, as: UTF8.self)
        if let found = ContainerLayout.parse(containerPath: text) {
            let path =
                (found.volume == "/" ? "" : found.volume) + "/"
                + ContainerLayout.path(found.kind, found.id)
            let again = ContainerLayout.parse(containerPath: path)
            require(
                again?.volume == found.volume && again?.kind == found.kind && again?.id == found.id,
                "a container's path changes: \(path)")
        }
        if let id = taken({ () throws(ContainerID.Invalid) in try ContainerID(text) }) {
            require(id.text == text && !text.contains("/"), "an ID that leads elsewhere: \(text)")
        }
    },
]
