"""The pictures of docs/windows.md, drawn from the clicks that its first example sends; readable on light and dark pages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "windows.md"
LEFT, RIGHT, LINE, TOP = 92, 738, 44, 44
SPAN = 360
"""Seconds that a picture shows."""

GAP = 30
"""The gap of the sessions that are drawn, in seconds."""

STYLE = """<style>
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .small { font-size: 11px; fill: #59636e }
  .axis, .lane { stroke: #818b98; stroke-width: 1 } .lane { stroke-dasharray: 1 5 }
  .closed { fill: #0969da; fill-opacity: .16; stroke: #0969da }
  .open { fill: none; stroke: #0969da; stroke-dasharray: 5 4 }
  .event { fill: #bc4c00 } .mark { stroke: #cf222e; stroke-width: 2 } .marked { fill: #cf222e }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .small { fill: #9198a1 }
    .closed { fill: #4493f8; fill-opacity: .28; stroke: #4493f8 } .open { stroke: #4493f8 }
    .event { fill: #f0883e } .mark { stroke: #ff7b72 } .marked { fill: #ff7b72 }
  }
</style>"""


@dataclass(frozen=True, slots=True)
class Click:
    """One click of the example: second after ten o'clock, user, page."""

    second: int
    user: str
    page: str


@dataclass(frozen=True, slots=True)
class Box:
    """A window or session on a line."""

    line: str
    start: int
    end: int
    label: str


def clicks() -> list[Click]:
    """Return the clicks that the first example of the document sends."""
    events = re.findall(r'\("10:(\d\d):(\d\d)", "(\w+)", "(\w+)"\)', PAGE.read_text(encoding="utf-8"))
    return [Click(int(minute) * 60 + int(second), user, page) for minute, second, user, page in events]


def tumbling() -> str:
    """Draw windows of a minute by page, as the example declares them."""
    rows, length = clicks(), 60
    groups = {(one.page, one.second // length * length) for one in rows}
    boxes = [
        Box(
            page,
            start,
            start + length,
            _clicks(sum(one.page == page and start <= one.second < start + length for one in rows)),
        )
        for page, start in sorted(groups)
    ]
    return _picture("Tumbling windows of one minute, by page", [(one.page, one.second) for one in rows], boxes)


def hopping() -> str:
    """Draw windows of two minutes that begin every minute."""
    rows, length, hop = clicks(), 120, 60
    newest = max(one.second for one in rows)
    boxes = []
    for start in range(-hop, newest + 1, hop):
        count = sum(start <= one.second < start + length for one in rows)
        if count:
            boxes.append(Box(f"from {_clock(start)}", start, start + length, _clicks(count)))
    lines = [("clicks", one.second) for one in rows]
    return _picture("Hopping windows of two minutes, every minute", lines, boxes)


def sessions() -> str:
    """Draw sessions by user."""
    rows, boxes = clicks(), []
    for user in sorted({one.user for one in rows}):
        times = sorted(one.second for one in rows if one.user == user)
        breaks = [0, *(n + 1 for n, (a, b) in enumerate(pairwise(times)) if b - a > GAP), len(times)]
        boxes += [
            Box(user, times[first], times[last - 1] + GAP, _clicks(last - first)) for first, last in pairwise(breaks)
        ]
    return _picture(f"Sessions with a gap of {GAP} seconds, by user", [(one.user, one.second) for one in rows], boxes)


def _clicks(count: int) -> str:
    return f"{count} click{'' if count == 1 else 's'}"


def _picture(title: str, events: list[tuple[str, int]], boxes: list[Box]) -> str:
    """Draw lines with events and boxes, and the watermark at the newest event."""
    lines = list(dict.fromkeys([*(line for line, _ in events), *(box.line for box in boxes)]))
    bottom, watermark = TOP + LINE * len(lines), max(second for _, second in events)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {bottom + 62}" role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        STYLE,
        f'<text x="{LEFT}" y="20">{title}</text>',
    ]
    for number, line in enumerate(lines):
        y = TOP + LINE * number + LINE // 2
        parts.append(f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end">{line}</text>')
        parts.append(f'<path class="lane" d="M{LEFT} {y}H{RIGHT}"/>')
    for box in boxes:
        y, first = TOP + LINE * lines.index(box.line) + 6, max(box.start, 0)
        kind = "closed" if box.end <= watermark else "open"
        width = _x(min(box.end, SPAN)) - _x(first)
        parts.append(f'<rect class="{kind}" x="{_x(first)}" y="{y}" width="{width}" height="{LINE - 12}" rx="4"/>')
        parts.append(f'<text class="small" x="{_x(first) + 5}" y="{y + 12}">{box.label}</text>')
    for line, second in events:
        parts.append(f'<circle class="event" cx="{_x(second)}" cy="{TOP + LINE * lines.index(line) + 28}" r="5"/>')
    parts.append(f'<path class="axis" d="M{LEFT} {bottom}H{RIGHT}"/>')
    for minute in range(SPAN // 60 + 1):
        parts.append(f'<path class="axis" d="M{_x(minute * 60)} {bottom}v5"/>')
        parts.append(
            f'<text class="small" x="{_x(minute * 60)}" y="{bottom + 18}" text-anchor="middle">{_clock(minute * 60)}</text>'
        )
    parts.append(f'<path class="mark" d="M{_x(watermark)} {TOP - 8}V{bottom}"/>')
    parts.append(f'<text class="small marked" x="{_x(watermark) - 6}" y="{TOP - 2}" text-anchor="end">watermark</text>')
    note = "filled: the watermark has reached its end, and it was given out; dashed: still open"
    parts += [f'<text class="small" x="{LEFT}" y="{bottom + 44}">{note}</text>', "</svg>"]
    return "\n".join(parts)


def _clock(second: int) -> str:
    hour, minute = divmod(600 + second // 60, 60)
    return f"{hour:02}:{minute:02}"


def _x(second: int) -> int:
    return LEFT + (RIGHT - LEFT) * second // SPAN
