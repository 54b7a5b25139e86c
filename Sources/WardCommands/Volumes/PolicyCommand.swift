import ArgumentParser
import WardConsole
import WardControl
import WardFormat
import WardKeys
import WardSystem

struct PolicyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "policy", abstract: "Show or change when a volume closes, and when it erases.",
        discussion: """
            --erase-after-10 suits who has a recovery kit or a backup in a safe place: where the file of \
            attempts in the state directory is lost or damaged, one try is left, and a mistyped \
            passcode erases.

            Examples:
              ward policy ~/papers
              ward policy set ~/papers --grace 30s
              ward policy set ~/papers --cx-period 2d --erase-after-10
            """,
        subcommands: [PolicyShowCommand.self, PolicySetCommand.self],
        defaultSubcommand: PolicyShowCommand.self)
}

/// The policy settings that `ward init` and `ward policy` can set.
struct PolicyOptions: ParsableArguments {
    @Option(help: "How long after a lock class A stays readable: 10s, 0s, 5m.")
    var grace: DurationArgument?
    @Option(help: "How long after the last unlock class CX stays readable: 1d, 12h.")
    var cxPeriod: DurationArgument?
    @Flag(
        name: .customLong("erase-after-10"), inversion: .prefixedNo,
        help: "Erase the volume at the tenth wrong passcode, instead of disabling it.")
    var eraseAfterTen: Bool?

    func validate() throws {
        if let grace, .seconds(grace.seconds) > KeybagPolicy.longestGracePeriod {
            throw ValidationError("--grace is at most 1h")
        }
        if let cxPeriod,
            .seconds(cxPeriod.seconds) > KeybagPolicy.longestUserInactivePeriod
                || cxPeriod.seconds < 1
        {
            throw ValidationError("--cx-period is 1s to 30d")
        }
    }

    var change: PolicyChange {
        PolicyChange(
            gracePeriod: grace.map { .seconds($0.seconds) },
            userInactivePeriod: cxPeriod.map { .seconds($0.seconds) },
            erasesAfterTenWrongPasscodes: eraseAfterTen)
    }
}

struct PolicyShowCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show", abstract: "Show the policy of a volume.",
        discussion: """
            Examples:
              ward policy show ~/papers
              ward policy show ~/.papers --json
            """)

    @Argument(help: "The volume's directory, or a path in its mount.", completion: .directory)
    var volume: String
    @OptionGroup var options: ReportOptions

    func run() throws {
        let what = "cannot show the policy of"
        let path = try VolumeDirectory.path(volume, what)
        let store = try VolumeDirectory.open(path, what)
        // A mounted volume was unlocked, which showed a forged policy.
        let connection = try? VolumeConnection(what, path: path)
        let isForged = (try? connection?.status())?.policyForged ?? false
        let policy =
            isForged
            ? store.policy.stronger(usualCost: store.policy.passcodeCost) : store.policy
        let console = options.console
        if console.isJSON {
            return console.json(
                .object([
                    ("volume", .string(path)), ("passcodeSet", .bool(store.hasPasscode)),
                    ("graceSeconds", .double(policy.gracePeriod / .seconds(1))),
                    ("userInactiveSeconds", .double(policy.userInactivePeriod / .seconds(1))),
                    ("eraseAfterTries", .bool(policy.erasesAfterTenWrongPasscodes)),
                    ("triesLeft", .int(Int64(store.attempts.triesLeft))),
                    ("policyForged", .bool(isForged)),
                ]))
        }
        let rows = [
            ("grace period", Text.duration(seconds: policy.gracePeriod / .seconds(1))),
            ("CX period", Text.duration(seconds: policy.userInactivePeriod / .seconds(1))),
            (
                "tenth wrong passcode",
                policy.erasesAfterTenWrongPasscodes ? "erases the volume" : "disables the volume"
            ),
            ("tries left", store.hasPasscode ? String(store.attempts.triesLeft) : "no passcode"),
        ]
        for (name, value) in rows {
            let padding = String(repeating: " ", count: 22 - name.count)
            console.result(name + padding + value)
        }
        if isForged { console.note(KeybagStore.forgedPolicyText) }
    }
}

struct PolicySetCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "set", abstract: "Change the policy of a volume.",
        discussion: """
            Needs the passcode where one is set. What is not named stays as it is; of a mounted \
            volume it is in force at once. Older copies of the keybag are worthless afterwards, so \
            that none of them brings the old policy back.

            Examples:
              ward policy set ~/papers --grace 30s
              ward policy set ~/.papers --no-erase-after-10 --passcode-file /run/keys/papers
            """)

    @OptionGroup var target: PasscodeTargetArgument
    @OptionGroup var policy: PolicyOptions
    @OptionGroup var passcode: PasscodeOptions
    @OptionGroup var general: GeneralOptions

    func validate() throws {
        if policy.change.isEmpty {
            throw ValidationError("name --grace, --cx-period or --erase-after-10")
        }
    }

    func run() throws {
        let what = "cannot change the policy of"
        let volume = try target.find(what)
        let name = try volume.name()
        let change = policy.change
        var current: SecretBytes?
        if try volume.hasPasscode(what) {
            current = try passcode.read(asking: "Passcode of \(name): ", general.console)
        }
        let (grace, cxPeriod, erase) = (policy.grace, policy.cxPeriod, policy.eraseAfterTen)
        try volume.perform(what) { client throws(ControlError) in
            try client.setPolicy(
                graceSeconds: grace?.seconds, userInactiveSeconds: cxPeriod?.seconds,
                eraseAfterTries: erase, current: current)
        } unmounted: { store, path in
            var typed: Passcode?
            if let copy = try current?.copy() {
                typed = try VolumeDirectory.passcode(copy, path, what)
            }
            try store.changePolicy(change, passcode: typed)
        }
        general.console.confirm("\(name): policy changed")
    }
}
