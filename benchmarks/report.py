"""What the figures of `make bench` say: medians, ratios, verdicts, tables."""

import statistics

import charts
import command
import systems
import workloads

FASTER_THAN_PEERS = 1.5
NEAR_PLAIN = 1.2
CPU_SHARE = 2 / 3
IDLE_LIMIT, PEAK_LIMIT = 30e6, 100e6
# Flushes may be merged where several programs ask at once, and the journal adds some when it likes.
FLUSH_SHARE, FEW_FLUSHES = 0.9, 10
SMALLEST_DIFFERENCE, LARGEST_NOISE = 0.05, 0.3

TITLES = {"ward": "ward", "ward-ring": "ward by io_uring", "plain": "ext4", "passthrough": "passthrough", "gocryptfs": "gocryptfs", "securefs": "securefs",
          "encfs": "encfs"}
WARDS = ["ward", "ward-ring"]
SOURCES = {"ward": "/dev/fuse", "ward-ring": "io_uring"}
PEERS = [name for name, kind in systems.SYSTEMS.items() if kind.is_peer]


def median(result: dict, key: str, name: str, cost: str = "seconds") -> float | None:
    rounds = result["rows"].get(key, {}).get(name)
    return statistics.median(figures[cost] for figures in rounds) if rounds else None


def ratio(result: dict, key: str, name: str, to: str, cost: str = "seconds") -> float | None:
    above, below = median(result, key, name, cost), median(result, key, to, cost)
    return above / below if above is not None and below else None


def measured(result: dict, *names: str) -> list[workloads.Row]:
    """The rows of which there is something for all of `names`."""
    return [row for row in workloads.ROWS if row.key in result["rows"] and set(names) <= set(result["rows"][row.key])]


def title(row: workloads.Row, result: dict) -> str:
    given = result["options"]
    size = given["size"]
    return row.words.format(
        size=f"{size >> 30} GiB" if size % 2**30 == 0 else f"{size >> 20} MiB",
        **{key: f"{given[key]:,}" for key in ("files", "tree", "wal", "rollback", "names")})


def fastest_peer(result: dict, key: str) -> tuple[str, float] | None:
    found = [(median(result, key, name), name) for name in PEERS if median(result, key, name) is not None]
    return (min(found)[1], min(found)[0]) if found else None


def misses(row: workloads.Row, result: dict, name: str) -> list[str]:
    """What `name`, one of `WARDS`, does not reach on this row."""
    missed = []
    to_plain = ratio(result, row.key, name, "plain")
    if to_plain is not None and to_plain > row.target:
        missed.append("target")
    peer = fastest_peer(result, row.key)
    if peer and peer[1] / median(result, row.key, name) < FASTER_THAN_PEERS and not (to_plain and to_plain <= NEAR_PLAIN):
        missed.append("others")
    cpu = ratio(result, row.key, name, "gocryptfs", "cpu")
    if cpu is not None and cpu > CPU_SHARE:
        missed.append("CPU")
    if median(result, row.key, name, "peak") > PEAK_LIMIT:
        missed.append("memory")
    plain = median(result, row.key, "plain", "flushes")
    if row.syncs and plain and median(result, row.key, name, "flushes") < (plain * FLUSH_SHARE if plain > FEW_FLUSHES else 1):
        missed.append("flushes")
    return missed


# --- Tables --------------------------------------------------------------------------------------------------------


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value < 9.995 else f"{value:.1f}"


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f} s" if value >= 0.9995 else f"{value * 1000:.3g} ms"


def megabytes(value: float | None) -> str:
    return "–" if value is None else f"{value / 1e6:,.0f}" if value >= 9.95e6 else f"{value / 1e6:.1f}"


def merged(missed: list[list[str]]) -> list[str]:
    """What both transports miss, what only /dev/fuse does (¹), and what only io_uring does (²)."""
    if len(missed) != len(WARDS):
        return sum(missed, [])
    device, ring = missed
    return [*(word if word in ring else f"{word}¹" for word in device), *(f"{word}²" for word in ring if word not in device)]


def verdict_table(result: dict) -> str:
    """Each system's time beside ext4's, and what ward misses by each of its transports."""
    others = [name for name in result["systems"] if name != "plain"]
    wards = [name for name in WARDS if name in others]
    rows = []
    for row in measured(result, *wards, "plain"):
        missed = merged([misses(row, result, name) for name in wards])
        shares = [times(ratio(result, row.key, name, "gocryptfs", "cpu")) for name in wards]
        rows.append([title(row, result), f"{row.target:g} [{row.others:g}]", seconds(median(result, row.key, "plain")),
                     *(times(ratio(result, row.key, name, "plain")) for name in others), ", ".join(shares),
                     ", ".join(missed) or "–"])
    return table(["time ÷ ext4's", "target [others then]", "ext4", *(TITLES[name] for name in others), "CPU ÷ gocryptfs's",
                  "ward misses"], rows)


def cost_table(result: dict) -> str:
    """What the disk and the servers did: ext4, ward, and the peer that it is held against."""
    names = [name for name in ("plain", "ward", "ward-ring", "gocryptfs") if name in result["systems"]]
    mounted = [name for name in names if name != "plain"]
    head = ["flushes · MB written, read", *(TITLES[name] for name in names), *(f"CPU, {TITLES[name]}" for name in mounted),
            *(f"peak, {TITLES[name]}" for name in mounted)]
    rows = []
    for row in measured(result, *names):
        disk = [f"{median(result, row.key, name, 'flushes'):,.0f} · {megabytes(median(result, row.key, name, 'written'))}, "
                f"{megabytes(median(result, row.key, name, 'read'))}" for name in names]
        rows.append([title(row, result), *disk, *(seconds(median(result, row.key, name, "cpu")) for name in mounted),
                     *(megabytes(median(result, row.key, name, "peak")) for name in mounted)])
    return table(head, rows)


def memory_table(result: dict) -> str:
    rows = []
    for name in result["systems"]:
        if name != "plain" and measured(result, name):
            peak = max((median(result, row.key, name, "peak"), title(row, result)) for row in measured(result, name))
            rows.append([TITLES[name], megabytes(statistics.median(result["idle"][name])), f"{megabytes(peak[0])} ({peak[1]})"])
    return table(["memory of the servers, MB", "after the mount", "most in any row"], rows)


def notes(result: dict) -> str:
    given = result["options"]
    said = command.notes(result, f"medians of {given['rounds']} rounds" if given["rounds"] > 1 else "one round",
                         f"{given['random']:,} random reads and as many writes, {given['appends']:,} appends")
    return f"{said}\n\n**{result['skipped']} cells had no time.**" if result["skipped"] else said


def summary(result: dict, name: str) -> str:
    judged = measured(result, name, "plain")
    held = sum(not misses(row, result, name) for row in judged)
    text = f"{held} of {len(judged)} rows hold all that is asked of them, by {SOURCES[name]}."
    idle = statistics.median(result["idle"][name])
    if idle > IDLE_LIMIT:
        text += f" Idle memory is {megabytes(idle)} MB, over {megabytes(IDLE_LIMIT)}."
    peak = max(median(result, row.key, name, "peak") for row in judged)
    return f"{text} The most memory of any row is {megabytes(peak)} MB."


def page(result: dict) -> str:
    """What docs/performance.md shows."""
    parts = []
    if "plain" in result["systems"]:
        parts += [verdict_table(result), *(summary(result, name) for name in WARDS if name in result["systems"])]
    return "\n\n".join([*parts, notes(result)])


def as_text(result: dict) -> str:
    if result["options"]["against"]:
        return "\n\n".join([regression_table(result), notes(result)])
    return "\n\n".join([cost_table(result), memory_table(result), page(result)])


def bars(result: dict) -> list[charts.Group]:
    names = [name for name in result["systems"] if name != "plain"]
    return [charts.Group(title(row, result), {name: value for name in names if (value := ratio(result, row.key, name, "plain"))},
                         row.target) for row in measured(result, "plain")]


# --- Two builds ----------------------------------------------------------------------------------------------------


def difference(new: list[float], old: list[float]) -> str:
    """Beyond the noise: every round of the one lies beside every round of the other."""
    change = statistics.median(new) / max(statistics.median(old), 1e-9)
    apart = max(new) < min(old) or max(old) < min(new)
    # One or two rounds have no spread to speak of.
    least = SMALLEST_DIFFERENCE if len(new) > 2 else LARGEST_NOISE
    return "" if not apart or abs(change - 1) < least else "faster" if change < 1 else "slower"


def regression_table(result: dict) -> str:
    """New ÷ old of the medians, row by row, and which of them differ."""
    rows, differing = [], []
    for row in measured(result, "ward", "ward-before"):
        new, old = ([figures["seconds"] for figures in result["rows"][row.key][name]] for name in ("ward", "ward-before"))
        change, word = statistics.median(new) / statistics.median(old), difference(new, old)
        if word:
            differing.append(f"{title(row, result)}: {word} ({times(change)})")
        cpu = ([figures["cpu"] for figures in result["rows"][row.key][name]] for name in ("ward", "ward-before"))
        if cpu_word := difference(*cpu):
            differing.append(f"{title(row, result)}: {'less' if cpu_word == 'faster' else 'more'} CPU "
                             f"({times(ratio(result, row.key, 'ward', 'ward-before', 'cpu'))})")
        spread = (max(old) - min(old)) / statistics.median(old)
        rows.append([title(row, result), seconds(statistics.median(old)), seconds(statistics.median(new)), times(change),
                     f"{spread * 100:.0f} %", times(ratio(result, row.key, "ward", "ward-before", "cpu")), word])
    new, old = ("io_uring", "/dev/fuse") if result["options"].get("transports") else ("new", "old")
    text = table(["workload", old, new, f"{new} ÷ {old}", f"spread of {old}", f"CPU, {new} ÷ {old}", "beyond the noise"], rows)
    return f"{text}\n\n" + ("; ".join(differing) + "." if differing else "No difference beyond the noise.")
