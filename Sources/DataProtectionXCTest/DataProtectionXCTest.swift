// `import DataProtectionXCTest` in place of `import XCTest`.
//
// On Linux, XCTest re-exports all of Foundation. Foundation's calls are then ambiguous with those
// of DataProtection, or are the only ones and protect nothing. So this module re-exports XCTest's
// declarations one by one: the import of one declaration does not import its module.
@_exported import DataProtection

#if os(Linux)
    @_exported import class XCTest.XCTNSNotificationExpectation
    @_exported import class XCTest.XCTNSPredicateExpectation
    @_exported import class XCTest.XCTWaiter
    @_exported import class XCTest.XCTest
    @_exported import class XCTest.XCTestCase
    @_exported import class XCTest.XCTestCaseRun
    @_exported import class XCTest.XCTestExpectation
    @_exported import class XCTest.XCTestObservationCenter
    @_exported import class XCTest.XCTestRun
    @_exported import class XCTest.XCTestSuite
    @_exported import class XCTest.XCTestSuiteRun
    @_exported import func XCTest.XCTAssert
    @_exported import func XCTest.XCTAssertEqual
    @_exported import func XCTest.XCTAssertFalse
    @_exported import func XCTest.XCTAssertGreaterThan
    @_exported import func XCTest.XCTAssertGreaterThanOrEqual
    @_exported import func XCTest.XCTAssertIdentical
    @_exported import func XCTest.XCTAssertLessThan
    @_exported import func XCTest.XCTAssertLessThanOrEqual
    @_exported import func XCTest.XCTAssertNil
    @_exported import func XCTest.XCTAssertNoThrow
    @_exported import func XCTest.XCTAssertNotEqual
    @_exported import func XCTest.XCTAssertNotIdentical
    @_exported import func XCTest.XCTAssertNotNil
    @_exported import func XCTest.XCTAssertThrowsError
    @_exported import func XCTest.XCTAssertTrue
    @_exported import func XCTest.XCTFail
    @_exported import func XCTest.XCTMain
    @_exported import func XCTest.XCTSkipIf
    @_exported import func XCTest.XCTSkipUnless
    @_exported import func XCTest.XCTUnwrap
    @_exported import func XCTest.asyncTest
    @_exported import func XCTest.testCase
    @_exported import protocol XCTest.XCTWaiterDelegate
    @_exported import protocol XCTest.XCTestObservation
    @_exported import struct XCTest.XCTPerformanceMetric
    @_exported import struct XCTest.XCTSkip
    @_exported import struct XCTest.XCTestError
    @_exported import typealias XCTest.XCNotificationExpectationHandler
    @_exported import typealias XCTest.XCPredicateExpectationHandler
    @_exported import typealias XCTest.XCTestCaseClosure
    @_exported import typealias XCTest.XCTestCaseEntry
    @_exported import typealias XCTest.XCWaitCompletionHandler
    @_exported import var XCTest.XCTestErrorDomain
#else
    @_exported import XCTest
#endif
