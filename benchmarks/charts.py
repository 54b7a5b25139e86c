"""Charts as SVG, by hand: bars (`make bench`) and lines on logarithmic axes (`make bench-growth`). Their colours can be read on
a light page and on a dark one; where the reader's program says which it is, text follows."""

import dataclasses
import math
from xml.sax.saxutils import escape

# Told apart by hue and by lightness; each has a contrast of three to white and to black.
COLOURS = {"ward": "#0a84d6", "ext4": "#7a8089", "plain": "#7a8089", "passthrough": "#7a8089", "gocryptfs": "#d9730d",
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
        parts.append(text(x + 15, y, name))
        x += 40 + 7 * len(name)
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
    x = 16 + sum(40 + 7 * len(name) for name in names)
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
            goal = across(group.target) if name == "ward" else None
            if goal is not None:
                parts.append(f'<line class="goal" x1="{goal:.1f}" y1="{y - 2:.1f}" x2="{goal:.1f}" y2="{y + thick:.1f}"/>')
            beside = goal + 4 if goal is not None and end - 2 <= goal < end + 24 else end + 4  # not through the mark
            parts.append(text(beside, y + thick - 1.5, f"{value:.1f}", kind="small"))
            y += thick
        y += gap
    return document(width, bottom + 30, title, parts)
