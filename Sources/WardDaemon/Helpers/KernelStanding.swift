import WardControl

/// Where the check of the kernel stands.
enum KernelStanding: Equatable, Sendable {
    case checking
    /// The kernel drops pages when it is told to.
    case checked
    /// The kernel keeps pages; the text says which.
    case failed(String)
    /// There was no check; the text says why.
    case notChecked(String)

    /// The result of a check. `before`: the sight while the file was readable. `after`: the sight
    /// after its reads were refused and its pages dropped. Nil where the helper ended before.
    /// `kernel` names the kernel.
    init(before: PageSight?, after: PageSight?, kernel: String) {
        guard let before else {
            self = .notChecked("the helper of the check ended")
            return
        }
        for outcome in [before.mapped, before.read] {
            switch outcome {
            case .content: break
            case .otherBytes:
                self = .notChecked("the helper of the check read something else")
                return
            case .refused(let error):
                self = .notChecked("the helper of the check can't read its file: \(error)")
                return
            }
        }
        guard let after else {
            self = .notChecked("the helper of the check ended")
            return
        }
        var kept: [String] = []
        if !after.mapped.isRefusal { kept.append("mapped pages") }
        if !after.read.isRefusal { kept.append("pages of open files") }
        self =
            kept.isEmpty
            ? .checked
            : .failed(
                "the kernel (\(kernel)) keeps \(kept.joined(separator: " and ")) that a lock must drop"
            )
    }

    /// The word in `VolumeStatus.kernelCheck`.
    var word: String {
        switch self {
        case .checking: "checking"
        case .checked: "checked"
        case .failed: "failed"
        case .notChecked: "notChecked"
        }
    }

    var why: String? {
        switch self {
        case .checking, .checked: nil
        case .failed(let why), .notChecked(let why): why
        }
    }

    /// The answer to a call that opens classes; nil where they may be opened.
    var refusal: VolumeError? {
        switch self {
        case .checked: nil
        case .failed(let why): .kernelKeepsPages(reason: why)
        case .notChecked(let why):
            .busy(reason: "whether this kernel drops pages at a lock could not be checked: \(why)")
        case .checking:
            .busy(reason: "whether this kernel drops pages at a lock is still being checked")
        }
    }
}
