import Glibc
import WardSystem

/// The demo's plot: chapters in order, cleaned up after whatever happens.
enum DemoStory {
    /// Held back while the demo runs, so that Ctrl-C, or a reader who goes away (`ward demo |
    /// head`), ends it between two steps and after the clean-up.
    static let signals = [SIGINT, SIGTERM, SIGHUP, SIGPIPE]

    static func tell(_ narrator: Narrator) throws {
        var held = sigset_t()
        sigemptyset(&held)
        for signal in signals { sigaddset(&held, signal) }
        var before = sigset_t()
        pthread_sigmask(SIG_BLOCK, &held, &before)
        // Last: a signal that came meanwhile then ends the process as it would have.
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
            // Said here: the signal itself ends the process on the way out.
            Console().note("the demo was interrupted; everything it made was removed")
            throw CommandFailure(
                "the demo stopped at the step", "\"\(step)\"", why: "it was interrupted",
                status: .temporary)
        }
    }
}
