"""What the figures of `make bench-growth` say: straight lines or not, a table, a chart."""

import textwrap

import charts
import command

# One operation of many may take this much longer than one of few before it is called more than a straight line. What is small
# has fixed costs, which hide it; only from here on is growth judged.
STRAIGHT, JUDGED_FROM = 1.5, 100
# What should not depend on the size: this much between the largest and the smallest, where it is more than noise.
CONSTANT, NOISE_SECONDS = 1.5, 0.05

PANELS = {
    "create": ("directory of n names: create one", "s", "line"),
    "look-up": ("directory of n names: look one up, cold", "s", "line"),
    "list": ("directory of n names: list, for each name, cold", "s", "line"),
    "random-write": ("file of n bytes: random 4 KiB write", "s", "line"),
    "random-read": ("file of n bytes: random 4 KiB read, cold", "s", "line"),
    "processes": ("n processes: create, stat, read, unlink a file", "s", "line"),
    "mount": ("n files on the volume: mount", "s", "constant"),
    "unlock": ("n files on the volume: unlock", "s", "constant"),
    "class": ("n files on the volume: change one file's class", "s", "constant"),
    "lock": ("n files on the volume, none open: lock", "s", "constant"),
    "lock-all": ("lock after all n were read, for each", "s", "line"),
    "memory": ("memory after all n were read, B for each", "B", "line"),
}


def growth_of(points: list[list[float]], everything: bool) -> float | None:
    values = [value for count, value in points if everything or count >= JUDGED_FROM]
    return values[-1] / min(values) if len(values) > 1 else None


def judge(panel: str, points: list[list[float]], plain: list[list[float]]) -> tuple[bool, str]:
    """Whether the cost of all of it grows like a straight line or better, or like ext4's below it; of what should not grow,
    whether it does."""
    everything = PANELS[panel][2] == "constant" or panel == "processes"
    values = [value for _, value in points]
    growth = growth_of(points, everything)
    if growth is None:
        return True, "too few steps to say"
    if PANELS[panel][2] == "constant":
        fits = values[-1] <= max(min(values) * CONSTANT, min(values) + NOISE_SECONDS)
        return fits, "does not depend on it" if fits else f"grows, to {values[-1] / min(values):.1f} times the least"
    if growth <= STRAIGHT:
        return True, "a straight line or better"
    below = growth_of(plain, everything) or 1
    return growth <= below * STRAIGHT, (f"steeper, {growth:.1f} times the least for each" +
                                        (f"; ext4 {below:.1f} times" if plain else ""))


def readable(value: float, unit: str) -> str:
    if unit == "B":
        return f"{value:,.0f} B"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"


def count_words(panel: str, count: float) -> str:
    if panel.startswith("random"):
        return f"{count / 2**30:g} GiB" if count >= 2**30 else f"{count / 2**20:g} MiB"
    return f"{count:,.0f}"


def table(result: dict) -> tuple[str, list[str]]:
    """The table, and what is steeper than it should be."""
    lines = ["| what, and of how many | least | most | ward at the least | ward at the most | growth | ext4's | gocryptfs's |",
             "| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: |"]
    problems = []
    for panel, (words, unit, _) in PANELS.items():
        points = result["panels"].get(panel, {})
        if "ward" not in points:
            continue
        fits, said = judge(panel, points["ward"], points.get("plain", []))
        if not fits:
            problems.append(f"{words} ({said})")
        (least, first), (most, last) = points["ward"][0], points["ward"][-1]
        others = [f"{readable(points[name][0][1], unit)} to {readable(points[name][-1][1], unit)}" if name in points else "–"
                  for name in ("plain", "gocryptfs")]
        lines.append(f"| {words} | {count_words(panel, least)} | {count_words(panel, most)} | {readable(first, unit)} | "
                     f"{readable(last, unit)} | {said} | {' | '.join(others)} |")
    return "\n".join(lines), problems


def page(result: dict) -> str:
    """What docs/performance.md shows beside the chart."""
    problems = table(result)[1]
    verdict = "Straight lines or better everywhere, or as ext4's."
    if problems:
        verdict = f"Steeper than a straight line: {'; '.join(problems)}."
    rounds = result["options"]["rounds"]
    notes = command.notes(result, f"medians of {rounds} rounds, from 100,000 names on one" if rounds > 1 else "one round")
    return "\n\n".join([textwrap.fill(" ".join([verdict, *result["remarks"]]), 100), notes])


def as_text(result: dict) -> str:
    return f"{table(result)[0]}\n\n{page(result)}"


def chart(result: dict) -> str:
    return charts.lines([charts.Panel(words, unit, panel.startswith("random"), result["panels"][panel])
                         for panel, (words, unit, _) in PANELS.items() if panel in result["panels"]])
