// WardLint: the work of `ward lint`, in a program that knows no keys and no volumes.
//
// `LintedPackage` reads the Swift files of a package. `LintedFile` judges one file by its words
// (`SwiftTokens`) in the branches of #if that Linux compiles (`SwiftConditions`). Read `LintRules`
// first.
