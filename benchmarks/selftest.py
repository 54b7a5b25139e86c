"""Whether the reports notice what they should: figures made up for the purpose, with one thing wrong in each."""

import copy

import growth_report
import report
import samples
import workloads

ROW = next(row for row in workloads.ROWS if row.key == "append")


def figures(seconds: float, flushes: float = 200, cpu: float = 1.0, peak: float = 20e6) -> dict[str, float]:
    return {"seconds": seconds, "flushes": flushes, "cpu": cpu, "peak": peak, "read": 0, "written": 0}


def result(**rows) -> dict:
    return {"rows": {ROW.key: rows}, "systems": list(rows), "options": {"rounds": 3, "against": False}}


GOOD = {"plain": [figures(1.0)], "ward": [figures(1.1, cpu=0.6)], "gocryptfs": [figures(2.0)], "encfs": [figures(3.0)]}


def misses(name: str, **changes) -> list[str]:
    rows = copy.deepcopy(GOOD)
    rows[name] = [figures(**({"seconds": 1.1, "cpu": 0.6} | changes))]
    return report.misses(ROW, result(**rows), name if name in report.WARDS else "ward")


def against(new: list[float], old: list[float]) -> str:
    rows = {"ward": [figures(value) for value in new], "ward-before": [figures(value) for value in old]}
    return report.difference([value["seconds"] for value in rows["ward"]], [value["seconds"] for value in rows["ward-before"]])


def grows(panel: str, values: list[float], plain: list[float] = ()) -> bool:
    counts = [10 ** (number + 2) for number in range(len(values))]
    return not growth_report.judge(panel, list(zip(counts, values)), list(zip(counts, plain)))[0]


def of(text: str) -> list[str]:
    """Frames as perf script tells them; a slash begins those of the program."""
    kernel, _, user = text.partition("/")
    frames = [("ffffffff81000000", name) for name in kernel.split()] + [("55d000000000", name) for name in user.split()]
    return [samples.part(stack) for stack in samples.stacks("\n".join(f"\t{at} {name}" for at, name in frames) + "\n\n")]


ENTRY = "do_syscall_64 entry_SYSCALL_64_after_hwframe"


def run() -> None:
    cases = [
        ("all is well", misses("ward"), []),
        ("over the target, slower than 1.5 times the fastest", misses("ward", seconds=1.5), ["target", "others"]),
        ("over the target alone", misses("ward", seconds=1.3), ["target"]),
        ("as fast as another, but near ext4", misses("gocryptfs", seconds=1.2, cpu=1.0), []),
        ("more CPU than two thirds", misses("ward", cpu=0.7), ["CPU"]),
        ("too much memory", misses("ward", peak=101e6), ["memory"]),
        ("flushes left out", misses("ward", flushes=100), ["flushes"]),
        ("the other transport is judged by itself", misses("ward-ring", seconds=1.5), ["target", "others"]),
        ("missed by both, by one, by the other", report.merged([["target", "CPU"], ["target", "others"]]), ["target", "CPU¹", "others²"]),
        ("slower beyond the noise", against([1.2, 1.3, 1.25], [1.0, 1.1, 1.05]), "slower"),
        ("faster beyond the noise", against([1.0, 1.1, 1.05], [1.2, 1.3, 1.25]), "faster"),
        ("within the noise", against([1.2, 1.3, 1.05], [1.0, 1.1, 1.25]), ""),
        ("apart, but by little", against([1.02, 1.02, 1.02], [1.0, 1.0, 1.0]), ""),
        ("one round has no spread", against([1.2], [1.0]), ""),
        ("level", grows("list", [1, 1.1, 0.9, 1.2]), False),
        ("steeper than a straight line", grows("list", [1, 1.1, 2, 4]), True),
        ("steeper, as ext4 is", grows("list", [1, 1.1, 2, 4], [1, 1.1, 2, 3]), False),
        ("a mount that grows", grows("mount", [0.1, 0.1, 0.2, 0.3]), True),
        ("a mount that doesn't", grows("mount", [0.1, 0.12, 0.1, 0.11]), False),
        ("answering", of(f"fuse_dev_do_write vfs_writev do_writev {ENTRY} / __GI___writev RequestServer"), ["the device"]),
        ("on its way out of answering", of(f"schedule exit_to_user_mode_loop {ENTRY} / __GI___libc_write lookup"), ["the device"]),
        ("by io_uring", of(f"io_cqring_wait __do_sys_io_uring_enter {ENTRY} / syscall RingTransport.wait"), ["the device"]),
        ("polling", of("/ clock_gettime DeviceTransport.nextRequest"), ["the device"]),
        ("reading the store", of(f"filemap_read vfs_read __x64_sys_pread64 {ENTRY} / __libc_pread readPages"), ["the store"]),
        ("on its way into the store", of(f"{ENTRY} / __GI___fstatat64 PosixStorage"), ["the store"]),
        ("the cipher", of("/ CCryptoBoringSSL_aes_gcm_dec_update_vaes_avx512 open"), ["cipher"]),
        ("a tick meanwhile", of("tick asm_sysvec_apic_timer_interrupt / CCryptoBoringSSL_gcm_init open"), ["cipher"]),
        ("its own code", of("/ NodeTable.look RequestServer"), ["ward itself"]),
        ("sleeping", of(f"futex_wait __x64_sys_futex {ENTRY} / syscall FutexWord.wait"), ["other calls"]),
        ("looking at itself", of(f"proc_single_show vfs_read ksys_read {ENTRY} / read ThreadUse.text"), ["other calls"]),
    ]
    wrong = [f"{words}: {found!r} instead of {expected!r}" for words, found, expected in cases if found != expected]
    if wrong:
        raise SystemExit("error: the reports don't notice:\n" + "\n".join(wrong))
    print("bench: the verdicts bite")
