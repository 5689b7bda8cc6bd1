"""Draws a placed graph as SVG 1.1, which browsers and GitHub show; its text can be found and copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from cairn.build.graph.layout import HEIGHT, WIDTH, Layout, Node, place

_LETTERS = 23  # of 12 pixels that fit into a box; in a line of 10 pixels, a fourth more
_LEGEND = 40
_CORNER = 6
# Fill and frame; pairs that the colour-blind tell apart, and that print (Okabe and Ito, 2008).
_TONES = {
    "run": ("#fdeccd", "#b36b00"),
    "kept": ("#d8efe3", "#00714f"),
    "open": ("#eeeeee", "#777777"),
}
_ARROW = (
    '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#8795a3"/></marker></defs>'
)
_STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1b1b1b}"
    ".name{font-size:12px;font-weight:600}.note{font-size:10px;fill:#444}"
    ".lane{font-size:12px;font-weight:600;fill:#33475b}"
    ".edge{fill:none;stroke:#8795a3;stroke-width:1.3}.shared{stroke:#b3bec9}"
)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A step in a picture.

    Attributes:
        node: what is placed.
        label: what its box says.
        note: what stands below it, smaller.
        tone: `run`, `kept`, or `open` where that is not known yet.
        hint: all that there is to say, shown where the mouse points.
    """

    node: Node
    label: str
    note: str
    tone: str
    hint: str


def draw(steps: Iterable[Drawn], *, title: str, meaning: Mapping[str, str]) -> str:
    """The picture.

    Args:
        steps: in the order of the lanes.
        title: what it shows, for those who have it read aloud.
        meaning: of each tone, for the legend.
    """
    shown = tuple(steps)
    layout = place([step.node for step in shown])
    height = layout.height + _LEGEND
    width = max(layout.width, 560)
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label={quoteattr(title)}>',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        _ARROW,
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        *_lanes(layout, width),
        *(_edge(points, layout.trunks.get(ends[0])) for ends, points in layout.edges.items()),
        *(_box(step, layout) for step in shown),
        *_legend(meaning, layout.height),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _lanes(layout: Layout, width: float) -> Iterable[str]:
    for lane in layout.lanes:
        if not lane.name:
            continue
        yield (
            f'<rect x="8" y="{lane.top - 6:.0f}" width="{width - 16:.0f}" '
            f'height="{lane.bottom - lane.top + 16:.0f}" rx="8" fill="#f5f8fb" stroke="#dde5ec"/>'
        )
        yield f'<text class="lane" x="18" y="{lane.top + 10:.0f}">{escape(lane.name)}</text>'


def _edge(points: tuple[tuple[float, float], ...], trunk: float | None) -> str:
    (x, y), *rest = points
    path = [f"M{x:.1f},{y:.1f}"]
    for number, (to_x, to_y) in enumerate(rest):
        if number == 0 and trunk is not None and to_y - y > _CORNER * 2:  # down, beside the others
            path.append(f"H{trunk - _CORNER:.1f} Q{trunk:.1f},{y:.1f} {trunk:.1f},{y + _CORNER:.1f}")
            path.append(f"V{to_y - _CORNER:.1f} Q{trunk:.1f},{to_y:.1f} {trunk + _CORNER:.1f},{to_y:.1f}")
            path.append(f"H{to_x:.1f}")
        elif number % 2:  # straight through a column
            path.append(f"L{to_x:.1f},{to_y:.1f}")
        else:  # from one column to the next
            half = (x + to_x) / 2
            path.append(f"C{half:.1f},{y:.1f} {half:.1f},{to_y:.1f} {to_x:.1f},{to_y:.1f}")
        x, y = to_x, to_y
    kind = "edge" if trunk is None else "edge shared"
    return f'<path class="{kind}" d="{" ".join(path)}" marker-end="url(#end)"/>'


def _box(step: Drawn, layout: Layout) -> str:
    box = layout.boxes[step.node.name]
    fill, frame = _TONES[step.tone]
    label, note = _cut(step.label, _LETTERS), _cut(step.note, _LETTERS * 5 // 4)
    return (
        f"<g><title>{escape(step.hint)}</title>"
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="6" '
        f'fill="{fill}" stroke="{frame}" stroke-width="1.4"/>'
        f'<text class="name" x="{box.x + 10:.0f}" y="{box.y + 17:.0f}">{escape(label)}</text>'
        f'<text class="note" x="{box.x + 10:.0f}" y="{box.y + 31:.0f}">{escape(note)}</text></g>'
    )


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _legend(meaning: Mapping[str, str], top: float) -> Iterable[str]:
    x = 24
    for tone, words in meaning.items():
        fill, frame = _TONES[tone]
        yield f'<rect x="{x}" y="{top:.0f}" width="16" height="16" rx="3" fill="{fill}" stroke="{frame}"/>'
        yield f'<text class="note" x="{x + 22}" y="{top + 12:.0f}">{escape(words)}</text>'
        x += 40 + 6 * len(words)
