"""Pictures of a timeline, as text and as SVG: a row for each device, a gap wherever it waits."""

from typing import TYPE_CHECKING

from callboard.train.pipeline.schedules.actions import Kind

if TYPE_CHECKING:
    from callboard.train.pipeline.schedules.simulation import PipelineTimeline, Span

__all__ = ["as_svg", "as_text"]

WIDTH = 160
"""Characters of a row of text at most."""

COLOURS = {Kind.FORWARD: "#2a78d6", Kind.BACKWARD: "#1c8a5a", Kind.INPUT: "#1c8a5a", Kind.WEIGHT: "#c98a1b"}

MARKS = {Kind.FORWARD: "F", Kind.BACKWARD: "B", Kind.INPUT: "B", Kind.WEIGHT: "W"}


def as_text(timeline: "PipelineTimeline") -> str:
    """``0 |F0 F1 F2 ...|``: each action has its letter and its micro-batch, dots are time in which a device waits."""
    spans = [span for row in timeline.devices for span in row]
    shortest = min((span.end - span.start for span in spans if span.end > span.start), default=1.0)
    letters = max(len(_label(span)) for span in spans) + 1
    scale = min(letters / shortest, WIDTH / (timeline.makespan or 1.0))
    width = round(timeline.makespan * scale)
    lines = []
    for rank, row in enumerate(timeline.devices):
        line = ["·"] * width
        for span in row:
            start, end = round(span.start * scale), round(span.end * scale)
            line[start:end] = _label(span).ljust(end - start, "-")[: end - start]
            if end - start > len(_label(span)):
                line[end - 1] = " "
        lines.append(f"{rank} |{''.join(line)}|")
    return "\n".join([*lines, _summary(timeline)])


def as_svg(timeline: "PipelineTimeline") -> str:
    """The same with boxes; weights' gradients have a colour of their own."""
    scale, row = 760.0 / (timeline.makespan or 1.0), 26
    boxes = []
    for rank, spans in enumerate(timeline.devices):
        boxes.append(f'<text x="0" y="{rank * row + 17}" font-size="12" fill="gray">{rank}</text>')
        for span in spans:
            x, width = 24 + span.start * scale, (span.end - span.start) * scale
            boxes.append(
                f'<rect x="{x:.1f}" y="{rank * row}" width="{width:.1f}" height="{row - 4}" '
                f'fill="{COLOURS[span.action.kind]}" stroke="white"><title>{span.action}</title></rect>'
            )
            if width > 14:
                boxes.append(
                    f'<text x="{x + width / 2:.1f}" y="{rank * row + 16}" font-size="10" fill="white" '
                    f'text-anchor="middle">{span.action.micro}</text>'
                )
    height = len(timeline.devices) * row
    boxes.append(f'<text x="24" y="{height + 14}" font-size="12" fill="gray">{_summary(timeline)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 790 {height + 20}" width="790" role="img" '
        f'aria-label="{_summary(timeline)}">{"".join(boxes)}</svg>'
    )


def _label(span: "Span") -> str:
    return f"{MARKS[span.action.kind]}{span.action.micro}"


def _summary(timeline: "PipelineTimeline") -> str:
    peaks = ", ".join(map(str, timeline.peaks))
    return f"{timeline.makespan:g} long, {timeline.bubble:.0%} waiting, passes held: {peaks}"
