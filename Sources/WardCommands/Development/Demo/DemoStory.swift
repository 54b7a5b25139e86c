import Glibc
import WardConsole
import WardSystem

/// Runs the chapters in order and always cleans up.
enum DemoStory {
    /// Blocked during the demo, so that it ends between two steps and after the clean-up. Covers
    /// Ctrl-C and a reader that closes the pipe (`ward demo | head`).
    static let signals = [SIGINT, SIGTERM, SIGHUP, SIGPIPE]

    static func tell(_ narrator: Narrator) throws {
        var held = sigset_t()
        sigemptyset(&held)
        for signal in signals { sigaddset(&held, signal) }
        var before = sigset_t()
        pthread_sigmask(SIG_BLOCK, &held, &before)
        // Unblocked last: a signal that is pending then ends the process normally.
        defer { pthread_sigmask(SIG_SETMASK, &before, nil) }

        let world = try DemoWorld(narrator)
        var stop: DemoStop?
        do throws(DemoStop) {
            var chapters = DemoChapters(world: world)
            try chapters.tellAll()
        } catch {
            stop = error
        }
        let step = world.step
        world.cleanUp()
        switch stop {
        case nil:
            narrator.say("")
            narrator.good("Every step behaved. The volume and everything else was removed again.")
        case .step(let step, let why):
            throw CommandFailure(
                "the demo failed at the step", "\"\(step)\"", why: why,
                hint: "ward demo; if it stays, report it with its output and ward version",
                status: .software)
        case .interrupted:
            // A separate note, because the pending signal ends the process before the error is
            // shown.
            Console().note("the demo was interrupted; everything it made was removed")
            throw CommandFailure(
                "the demo stopped at the step", "\"\(step)\"", why: "it was interrupted",
                status: .temporary)
        }
    }
}
