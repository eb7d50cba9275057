"""``simulate_pipeline``: how long a schedule takes, where its devices wait, and how many passes they hold."""

from collections.abc import Sequence
from typing import NamedTuple

from callboard.train.pipeline.schedules.actions import Action, Kind, Table, needs
from callboard.train.pipeline.schedules.pictures import as_svg, as_text
from callboard.train.pipeline.schedules.tables import table

__all__ = ["PipelineCosts", "PipelineTimeline", "Span", "simulate", "simulate_pipeline"]


class PipelineCosts(NamedTuple):
    """What the parts of a stage take, in any unit; a list has one number for each stage.

    Attributes:
        forward: Forward pass of a micro-batch.
        input: Gradients of the inputs.
        weight: Gradients of the weights.
        transfer: From one device to another.
    """

    forward: float | Sequence[float] = 1.0
    input: float | Sequence[float] = 1.0
    weight: float | Sequence[float] = 1.0
    transfer: float = 0.0

    def of(self, action: Action) -> float:
        """What an action takes."""
        forward, grad, weight = (_at(one, action.stage) for one in self[:3])
        return {Kind.FORWARD: forward, Kind.BACKWARD: grad + weight, Kind.INPUT: grad, Kind.WEIGHT: weight}[action.kind]


def _at(costs: float | Sequence[float], stage: int) -> float:
    return costs if isinstance(costs, int | float) else costs[stage]


class Span(NamedTuple):
    """When an action ran."""

    action: Action
    start: float
    end: float


class PipelineTimeline(NamedTuple):
    """When each device computes what; ``print(timeline)`` draws it.

    Attributes:
        devices: The spans of each device, in order.
    """

    devices: Sequence[Sequence[Span]]

    @property
    def makespan(self) -> float:
        """From the first start to the last end."""
        return max(spans[-1].end for spans in self.devices if spans)

    @property
    def bubble(self) -> float:
        """Share of the devices' time in which they wait, in [0, 1)."""
        busy = sum(span.end - span.start for spans in self.devices for span in spans)
        return 1.0 - busy / (self.makespan * len(self.devices)) if self.makespan else 0.0

    @property
    def peaks(self) -> list[int]:
        """Most forward passes that each device holds for a backward pass at one time."""
        return [_peak(spans) for spans in self.devices]

    def __str__(self) -> str:
        return as_text(self)

    def svg(self) -> str:
        """The picture as SVG."""
        return as_svg(self)

    def _repr_html_(self) -> str:
        return self.svg()


def _peak(spans: Sequence[Span]) -> int:
    held = most = 0
    for span in spans:
        held += {Kind.FORWARD: 1, Kind.INPUT: 0, Kind.BACKWARD: -1, Kind.WEIGHT: -1}[span.action.kind]
        most = max(most, held)
    return most


def simulate_pipeline(
    schedule: str,
    stages: int,
    micro_batches: int,
    costs: PipelineCosts | None = None,
    *,
    devices: int | None = None,
) -> PipelineTimeline:
    """Simulate a step of a pipeline.

    ::

        timeline = cb.simulate_pipeline("zero-bubble", 4, 8)
        print(timeline, timeline.makespan, timeline.bubble, timeline.peaks)

    Args:
        schedule: ``"gpipe"``, ``"1f1b"``, ``"eager-1f1b"``, ``"interleaved"`` or ``"zero-bubble"``.
        stages: Stages of the model.
        micro_batches: Their number in a step.
        costs: What the parts take; None: 1 each, and nothing for transfers.
        devices: Their number; None: one for each stage, or half as many with ``"interleaved"``.

    Raises:
        ValueError: An unknown schedule, or numbers that cannot be.
    """
    if devices is None:
        devices = max(1, stages // 2) if schedule == "interleaved" else stages
    return simulate(table(schedule, devices, stages, micro_batches), costs or PipelineCosts())


def simulate(actions: Table, costs: PipelineCosts) -> PipelineTimeline:
    """When each action of a table runs: as soon as its device is free and what it needs has arrived.

    Raises:
        ValueError: Devices would wait for each other for ever.
    """
    where = {action: rank for rank, row in enumerate(actions) for action in row}
    stages = max(action.stage for action in where) + 1
    split = any(action.kind is Kind.INPUT for action in where)
    ends: dict[Action, float] = {}
    spans: list[list[Span]] = [[] for _ in actions]
    while len(ends) < len(where):
        before = len(ends)
        for rank, row in enumerate(actions):
            for action in row[len(spans[rank]) :]:
                needed = list(needs(action, stages, split))
                if any(one not in ends for one in needed):
                    break
                arrivals = [ends[one] + (costs.transfer if where[one] != rank else 0.0) for one in needed]
                start = max([spans[rank][-1].end if spans[rank] else 0.0, *arrivals])
                ends[action] = start + costs.of(action)
                spans[rank].append(Span(action, start, ends[action]))
        if len(ends) == before:
            waiting = [str(row[len(done)]) for row, done in zip(actions, spans, strict=True) if len(done) < len(row)]
            raise ValueError(f"the table never ends: {', '.join(waiting)} wait for each other")
    return PipelineTimeline(spans)
