"""Charts as SVG, by hand: bars (`make bench`) and lines on logarithmic axes (`make bench-growth`). Their colours can be read on
a light page and on a dark one; where the reader's program says which it is, text follows."""

import dataclasses
import math
from xml.sax.saxutils import escape

# Told apart by hue and by lightness; each has a contrast of three to white and to black.
NAMES = {"plain": "ext4", "ward-ring": "ward by io_uring"}
COLOURS = {"ward": "#0a84d6", "ward-ring": "#5599cc", "ext4": "#7a8089", "plain": "#7a8089", "passthrough": "#7a8089", "gocryptfs": "#d9730d",
           "securefs": "#a05cc5", "encfs": "#3f9c4f"}
STYLE = """<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #767c85 }
.title { font-size: 15px; font-weight: 600 } .small { font-size: 9.5px } .grid { stroke: #808690; stroke-opacity: .3 }
.goal { stroke: #767c85; stroke-width: 2 } .line { fill: none; stroke-width: 2 }
@media (prefers-color-scheme: light) { text { fill: #24292f } .goal { stroke: #24292f } }
@media (prefers-color-scheme: dark) { text { fill: #d0d7de } .goal { stroke: #d0d7de } }
</style>"""


@dataclasses.dataclass(frozen=True)
class Group:
    """Bars of one row: by system, how many times as long as ext4; and the mark to stay to the left of."""

    words: str
    values: dict[str, float]
    target: float


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{mark}>{escape(words)}</text>'


def document(width: float, height: float, title: str, parts: list[str]) -> str:
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
            f'height="{height:.0f}" role="img">\n<title>{escape(title)}</title>\n{STYLE}\n' + "\n".join(parts) + "\n</svg>\n")


def legend(names: list[str], x: float, y: float) -> list[str]:
    parts = []
    for name in names:
        parts.append(f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="10" height="10" rx="2" fill="{colour(name)}"/>')
        words = NAMES.get(name, name)
        parts.append(text(x + 15, y, words))
        x += 40 + 7 * len(words)
    return parts


def colour(name: str) -> str:
    return COLOURS.get(name, "#7a8089")


def bars(groups: list[Group]) -> str:
    width, left, right, top, thick, gap = 860, 285, 60, 72, 10, 12
    names = list(dict.fromkeys(name for group in groups for name in group.values))
    most = max([2.0, *(value for group in groups for value in (*group.values.values(), group.target))])
    least = min([0.8, *(value for group in groups for value in group.values.values())])
    low, high = math.log(least), math.log(most * 1.05)

    def across(value: float) -> float:
        return left + (math.log(value) - low) / (high - low) * (width - left - right)

    heights = [thick * len(group.values) + gap for group in groups]
    bottom = top + sum(heights)
    title = "Time, in multiples of plain ext4's (shorter is better; logarithmic)"
    parts = [text(16, 24, title, kind="title"), *legend(names, 16, 48)]
    x = 16 + sum(40 + 7 * len(NAMES.get(name, name)) for name in names)
    parts += [f'<line class="goal" x1="{x + 5}" y1="38" x2="{x + 5}" y2="50"/>', text(x + 12, 48, "ward's target")]
    for tick in (0.25, 0.5, 1, 2, 3, 5, 10, 20, 50, 100, 200):
        if least <= tick <= most * 1.05:
            parts.append(f'<line class="grid" x1="{across(tick):.1f}" y1="{top - 6}" x2="{across(tick):.1f}" y2="{bottom}"/>')
            parts.append(text(across(tick), bottom + 16, f"{tick:g}×", "middle"))
    y = float(top)
    for group, height in zip(groups, heights):
        parts.append(text(left - 12, y + (height - gap) / 2 + 4, group.words, "end"))
        for name, value in group.values.items():
            begin, end = across(min(1.0, value)), across(max(1.0, value))
            parts.append(f'<rect x="{begin:.1f}" y="{y:.1f}" width="{max(1.5, end - begin):.1f}" height="{thick - 1.5}" '
                         f'fill="{colour(name)}"/>')
            goal = across(group.target) if name in ("ward", "ward-ring") else None
            if goal is not None:
                parts.append(f'<line class="goal" x1="{goal:.1f}" y1="{y - 2:.1f}" x2="{goal:.1f}" y2="{y + thick:.1f}"/>')
            beside = goal + 4 if goal is not None and end - 2 <= goal < end + 24 else end + 4  # not through the mark
            parts.append(text(beside, y + thick - 1.5, f"{value:.1f}", kind="small"))
            y += thick
        y += gap
    return document(width, bottom + 30, title, parts)


# --- Lines -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Panel:
    words: str
    unit: str  # s or B
    counts_bytes: bool
    points: dict[str, list[list[float]]]


PANEL_WIDTH, PANEL_HEIGHT, COLUMNS = 420, 250, 2
POWERS = {"s": {1e-6: "1 µs", 1e-5: "10 µs", 1e-4: "100 µs", 1e-3: "1 ms", 1e-2: "10 ms", 0.1: "100 ms", 1: "1 s", 10: "10 s"},
          "B": {1: "1 B", 10: "10 B", 100: "100 B", 1e3: "1 kB", 1e4: "10 kB", 1e5: "100 kB", 1e6: "1 MB"}}


def lines(panels: list[Panel]) -> str:
    names = list(dict.fromkeys(name for panel in panels for name in panel.points))
    title = "What one operation costs as the work grows (logarithmic both ways; level is straight)"
    parts = [text(16, 24, title, kind="title"), *legend(names, 16, 48)]
    for number, panel in enumerate(panels):
        parts += draw(panel, 16 + number % COLUMNS * PANEL_WIDTH, 64 + number // COLUMNS * PANEL_HEIGHT)
    return document(32 + COLUMNS * PANEL_WIDTH, 76 + -(-len(panels) // COLUMNS) * PANEL_HEIGHT, title, parts)


def draw(panel: Panel, x: float, y: float) -> list[str]:
    left, right, top, bottom = x + 58, x + PANEL_WIDTH - 24, y + 30, y + PANEL_HEIGHT - 34
    counts = [count for points in panel.points.values() for count, _ in points]
    values = [value for points in panel.points.values() for _, value in points if value > 0]
    # Whole powers of ten below and above, so that a level line does not fill the height.
    low, high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values) * 1.001))

    def across(count: float) -> float:
        return left + (math.log(count / min(counts)) / math.log(max(counts) / min(counts)) if len(set(counts)) > 1 else 0.5) * (
            right - left)

    def down(value: float) -> float:
        return bottom - math.log(value / low) / math.log(high / low) * (bottom - top)

    parts = [text(x + 8, y + 18, panel.words)]
    for power, words in POWERS[panel.unit].items():
        if low * 0.99 <= power <= high * 1.01:
            parts.append(f'<line class="grid" x1="{left:.1f}" y1="{down(power):.1f}" x2="{right:.1f}" y2="{down(power):.1f}"/>')
            parts.append(text(left - 6, down(power) + 4, words, "end", "small"))
    for count in sorted(set(counts)):
        parts.append(text(across(count), bottom + 15, shortened(count, panel.counts_bytes), "middle", "small"))
    for name, points in panel.points.items():
        path = " ".join(f"{across(count):.1f},{down(value):.1f}" for count, value in points if value > 0)
        parts.append(f'<polyline class="line" stroke="{colour(name)}" points="{path}"/>')
        parts += [f'<circle cx="{place.split(",")[0]}" cy="{place.split(",")[1]}" r="2.6" fill="{colour(name)}"/>'
                  for place in path.split()]
    return parts


def shortened(count: float, is_bytes: bool) -> str:
    step, units = (1024, ("B", "KiB", "MiB", "GiB", "TiB")) if is_bytes else (1000, ("", "k", "M"))
    unit = 0
    while count >= step and unit + 1 < len(units):
        count, unit = count / step, unit + 1
    return f"{count:g} {units[unit]}".strip() if is_bytes else f"{count:g}{units[unit]}"
