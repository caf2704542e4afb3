"""Charts and graphs as SVG, drawn here: no script and no library in the browser; every text in them is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from graphlib import CycleError, TopologicalSorter
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

from ematix_flow.wording import quantity

_NODE_WIDTH, _NODE_HEIGHT, _GAP_X, _GAP_Y = 190, 44, 60, 18
_TEXT_LENGTH = 24


def _svg(width: float, height: float, label: str, body: Sequence[Markup], css: str, role: str = "img") -> Markup:
    head = Markup('<svg class="{}" viewBox="0 0 {:.0f} {:.0f}" role="{}" aria-label="{}">')
    return Markup("").join([head.format(css, width, height, role, label), *body, Markup("</svg>")])


def run_bars(runs: Sequence[Mapping[str, Any]]) -> Markup:
    """Return the recent runs of a pipeline as bars, oldest first: as high as they took long, each a link to its run."""
    if not runs:
        return Markup('<span class="muted">no runs</span>')
    longest = max((run["duration_ms"] or 0 for run in runs), default=0) or 1
    bars = []
    for number, run in enumerate(runs):
        height = 6 + 18 * (run["duration_ms"] or longest) / longest
        bar = Markup(
            '<a href="/runs/{}" aria-label="{}"><rect class="s-{}" x="{}" y="{:.1f}" width="8" height="{:.1f}" rx="1">'
            "<title>{}</title></rect></a>"
        )
        key, text = quote(run["key"], safe=""), f"{run['status']} {run['started_at']}"
        bars.append(bar.format(key, text, run["status"], number * 10, 24 - height, height, text))
    return _svg(100, 24, f"{len(runs)} recent runs", bars, "bars", "group")


def history_chart(runs: Sequence[Mapping[str, Any]]) -> Markup:
    """Return rows and seconds of many runs, oldest first: bars for seconds, a line for rows."""
    known = [run for run in runs if run["duration_ms"] is not None]
    if not known:
        return Markup("")
    width, height, step = 720.0, 140.0, min(30.0, 700.0 / len(known))
    longest = max(run["duration_ms"] for run in known) or 1
    rows = [(run["rows_inserted"] or 0) + (run["rows_updated"] or 0) for run in known]
    most = max(rows) or 1
    body = []
    for number, run in enumerate(known):
        bar = (height - 30) * run["duration_ms"] / longest + 1
        text = f"{run['started_at']}: {run['status']}, {run['duration_ms']} ms, {quantity(rows[number], 'row')}"
        body.append(
            Markup(
                '<a href="/runs/{}" aria-label="{}">'
                '<rect class="s-{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                "<title>{}</title></rect></a>"
            ).format(
                quote(run["key"], safe=""),
                text,
                run["status"],
                10 + number * step,
                height - 15 - bar,
                step * 0.8,
                bar,
                text,
            )
        )
    points = " ".join(
        f"{10 + (number + 0.4) * step:.1f},{height - 15 - (height - 30) * count / most:.1f}"
        for number, count in enumerate(rows)
    )
    body.append(Markup('<polyline class="rows" points="{}"/>').format(points))
    body.append(_text(10, 11, f"bars: up to {longest:,} ms; line: up to {quantity(most, 'row')}"))
    return _svg(width, height, "seconds and rows of recent runs", body, "chart", "group")


def timeline(steps: Sequence[Mapping[str, Any]]) -> Markup:
    """Return the steps of a run below each other, each as long as it took and where it began."""
    timed = [step for step in steps if step["duration_ms"] is not None]
    if not timed:
        return Markup("")
    begins = [datetime.fromisoformat(step["started_at"]).timestamp() * 1000 for step in timed]
    first = min(begins)
    total = max(begin + step["duration_ms"] for begin, step in zip(begins, timed, strict=True)) - first or 1
    body = []
    for number, (begin, step) in enumerate(zip(begins, timed, strict=True)):
        y, x = number * 24, 150 + 440 * (begin - first) / total
        length = max(2.0, 440 * step["duration_ms"] / total)
        body.append(_text(0, y + 16, _short(str(step["step"]), 20)))
        title = Markup(
            '<rect class="s-{}" x="{:.1f}" y="{}" width="{:.1f}" height="16" rx="2"><title>{}</title></rect>'
        )
        body.append(title.format(step["status"], x, y + 4, length, f"{step['target']} {step['step']}"))
        body.append(_text(600, y + 16, f"{step['duration_ms']:,} ms"))
    return _svg(720, len(timed) * 24 + 4, "steps of the run", body, "timeline")


def graph_picture(graph: Mapping[str, Any]) -> Markup:
    """Return pipelines, workflows and streams as boxes in columns, what waits to the right of what it waits for."""
    nodes = {(node["name"], node["kind"]): node for node in graph["nodes"]}
    edges = [((e["from"], e["from_kind"]), (e["to"], e["to_kind"]), e["why"]) for e in graph["edges"]]
    if not nodes:
        return Markup("")
    spots = _spots(list(nodes), [(first, second) for first, second, _ in edges])
    body = [_edge(spots[first], spots[second], why) for first, second, why in edges]
    body += [_node(nodes[key], *spot) for key, spot in spots.items()]
    width = max(x for x, _ in spots.values()) + _NODE_WIDTH + 10
    height = max(y for _, y in spots.values()) + _NODE_HEIGHT + 10
    return _svg(width, height, "what waits for what", body, "graph", "group").replace(
        'class="graph"', Markup('class="graph" width="{:.0f}" height="{:.0f}"').format(width, height), 1
    )


def _spots(
    keys: Sequence[tuple[str, str]], edges: Sequence[tuple[tuple[str, str], tuple[str, str]]]
) -> dict[tuple[str, str], tuple[float, float]]:
    """Return where each node is: a column further right than everything it waits for."""
    before: dict[tuple[str, str], set[tuple[str, str]]] = {key: set() for key in keys}
    for first, second in edges:
        before[second].add(first)
    try:
        ordered = list(TopologicalSorter(before).static_order())
    except CycleError:
        ordered, before = list(keys), {key: set() for key in keys}
    column: dict[tuple[str, str], int] = {}
    for key in ordered:
        column[key] = max((column[one] + 1 for one in before[key]), default=0)
    rows: dict[int, int] = {}
    spots = {}
    for key in sorted(keys, key=lambda one: (column[one], ordered.index(one))):
        row = rows.get(column[key], 0)
        rows[column[key]] = row + 1
        spots[key] = (5.0 + column[key] * (_NODE_WIDTH + _GAP_X), 5.0 + row * (_NODE_HEIGHT + _GAP_Y))
    return spots


def _edge(first: tuple[float, float], second: tuple[float, float], why: str) -> Markup:
    x1, y1 = first[0] + _NODE_WIDTH, first[1] + _NODE_HEIGHT / 2
    x2, y2 = second[0], second[1] + _NODE_HEIGHT / 2
    middle = (x1 + x2) / 2
    path = f"M{x1:.0f},{y1:.0f} C{middle:.0f},{y1:.0f} {middle:.0f},{y2:.0f} {x2:.0f},{y2:.0f}"
    return Markup('<path class="edge {}" d="{}"/>').format(f"why-{why}", path)


def _node(node: Mapping[str, Any], x: float, y: float) -> Markup:
    pages = {"pipeline": "/pipelines/", "stream": "/streams/", "workflow": "/workflows?name="}
    box = Markup(
        '<a href="{}"><g><rect class="node s-{}" x="{:.0f}" y="{:.0f}" width="{}" height="{}" rx="{}"/>'
        "{}{}<title>{}</title></g></a>"
    )
    name, state = str(node["name"]), str(node["state"])
    return box.format(
        pages[node["kind"]] + quote(name, safe=""),
        state.replace(" ", "-"),
        x,
        y,
        _NODE_WIDTH,
        _NODE_HEIGHT,
        20 if node["kind"] == "stream" else 3,
        _text(x + 10, y + 18, _short(name, _TEXT_LENGTH)),
        _text(x + 10, y + 35, f"{node['kind']}, {state}", "small"),
        name,
    )


def _text(x: float, y: float, text: str, css: str = "") -> Markup:
    return Markup('<text x="{:.0f}" y="{:.0f}" class="{}">{}</text>').format(x, y, css, escape(text))


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
