import Foundation

/// The state of a process or thread, proc_pid_stat(5): "S" while it sleeps, "T" while it is
/// stopped; nil if there is none.
package func processState(_ process: pid_t) -> Character? {
    let stat = try? String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8)
    return stat?.split(separator: ")").last?.first { $0 != " " }
}
