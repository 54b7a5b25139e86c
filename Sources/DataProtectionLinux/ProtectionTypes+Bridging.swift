/// Bridges to `NSString`, because on Apple's platforms the type is a string of Objective-C. So
/// `attributes[.protectionKey] as? String` works, as well as `as? FileProtectionType` and
/// `FileProtectionType.complete as NSObject`.
///
/// On Linux a cast to `String` does not use this bridge, but a cast from an `NSString` does.
/// Therefore the library puts an `NSString` into dictionaries.
extension FileProtectionType: @retroactive _ObjectiveCBridgeable {
    public func _bridgeToObjectiveC() -> NSString { NSString(string: rawValue) }

    public static func _forceBridgeFromObjectiveC(
        _ source: NSString, result: inout FileProtectionType?
    ) {
        result = _unconditionallyBridgeFromObjectiveC(source)
    }

    public static func _conditionallyBridgeFromObjectiveC(
        _ source: NSString, result: inout FileProtectionType?
    ) -> Bool {
        _forceBridgeFromObjectiveC(source, result: &result)
        return true
    }

    public static func _unconditionallyBridgeFromObjectiveC(
        _ source: NSString?
    ) -> FileProtectionType {
        FileProtectionType(rawValue: source.map { $0 as String } ?? "")
    }
}

/// Bridges like `FileProtectionType`.
extension URLFileProtection: _ObjectiveCBridgeable {
    public func _bridgeToObjectiveC() -> NSString { NSString(string: rawValue) }

    public static func _forceBridgeFromObjectiveC(
        _ source: NSString, result: inout URLFileProtection?
    ) {
        result = _unconditionallyBridgeFromObjectiveC(source)
    }

    public static func _conditionallyBridgeFromObjectiveC(
        _ source: NSString, result: inout URLFileProtection?
    ) -> Bool {
        _forceBridgeFromObjectiveC(source, result: &result)
        return true
    }

    public static func _unconditionallyBridgeFromObjectiveC(
        _ source: NSString?
    ) -> URLFileProtection {
        URLFileProtection(rawValue: source.map { $0 as String } ?? "")
    }
}
