"""Schedules: the order in which each device computes, as pure functions of the numbers of devices and micro-batches.

Every stage takes the micro-batches in ascending order, forward and backward, so that gradients are added up in the same
order under all schedules.
"""

import itertools
from collections import deque
from collections.abc import Iterator

from callboard.train.pipeline.schedules.actions import Action, Kind, Table

__all__ = ["SCHEDULES", "placement", "table"]

SCHEDULES = "gpipe", "1f1b", "eager-1f1b", "interleaved", "zero-bubble"


def placement(schedule: str, devices: int, stages: int) -> list[int]:
    """The device of each stage.

    ``interleaved`` deals the stages out in turn if their number divides; else each device gets stages that follow each
    other.
    """
    if _in_turn(schedule, devices, stages):
        return [stage % devices for stage in range(stages)]
    return [stage * devices // stages for stage in range(stages)]


def _in_turn(schedule: str, devices: int, stages: int) -> bool:
    return schedule == "interleaved" and stages > devices and stages % devices == 0


def table(schedule: str, devices: int, stages: int, micro_batches: int) -> Table:
    """The actions of each device.

    Args:
        schedule: ``"gpipe"``: all forward passes, then all backward passes. ``"1f1b"``: one forward, one backward in
            turn, with at most as many micro-batches in flight as there are stages ahead. ``"eager-1f1b"``: the same
            with about twice as many, so that a device computes while values are on their way. ``"interleaved"``: as
            ``"1f1b"``, with several stages on each device, which are taken in turn. ``"zero-bubble"``: as ``"1f1b"``,
            with the gradients of the weights computed where the device would wait (ZB-H1).
        devices: Their number.
        stages: At least as many.
        micro_batches: At least 1.

    Raises:
        ValueError: An unknown schedule, or numbers that cannot be.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule is {schedule!r}; use one of {', '.join(SCHEDULES)}")
    if not 1 <= devices <= stages:
        raise ValueError(f"{stages} stages on {devices} devices; each device has at least one stage")
    if micro_batches < 1:
        raise ValueError(f"micro_batches is {micro_batches}; it is at least 1")
    of = placement(schedule, devices, stages)
    own = [[stage for stage in range(stages) if of[stage] == rank] for rank in range(devices)]
    if _in_turn(schedule, devices, stages):
        return [list(_interleaved(rank, devices, mine, micro_batches)) for rank, mine in enumerate(own)]
    orders = {
        "gpipe": _gpipe,
        "1f1b": _one_in_turn,
        "eager-1f1b": _eager,
        "interleaved": _one_in_turn,
        "zero-bubble": _zero_bubble,
    }
    return [list(_each_stage(orders[schedule](rank, devices, micro_batches), mine)) for rank, mine in enumerate(own)]


Order = Iterator[tuple[Kind, int]]


def _each_stage(order: Order, stages: list[int]) -> Iterator[Action]:
    for kind, micro in order:
        for stage in stages if kind is Kind.FORWARD else reversed(stages):
            yield Action(kind, stage, micro)


def _gpipe(rank: int, devices: int, micros: int) -> Order:
    for micro in range(micros):
        yield Kind.FORWARD, micro
    for micro in range(micros):
        yield Kind.BACKWARD, micro


def _one_in_turn(rank: int, devices: int, micros: int) -> Order:
    ahead = min(devices - rank - 1, micros)
    for micro in range(ahead):
        yield Kind.FORWARD, micro
    for micro in range(micros):
        if micro + ahead < micros:
            yield Kind.FORWARD, micro + ahead
        yield Kind.BACKWARD, micro


def _eager(rank: int, devices: int, micros: int) -> Order:
    """Eager 1F1B of Zhuang et al. (2022): forward passes begin as early as if values took a pass to the next device."""
    return _one_in_turn(2 * rank, 2 * devices - 1, micros)


def _zero_bubble(rank: int, devices: int, micros: int) -> Order:
    """ZB-H1 of Qi et al. (2023): device ``rank`` postpones ``rank`` gradients of weights.

    So each device holds as many passes as the first one does under 1F1B.
    """
    late: deque[int] = deque()
    for kind, micro in _one_in_turn(rank, devices, micros):
        if kind is Kind.FORWARD:
            yield kind, micro
            continue
        yield Kind.INPUT, micro
        late.append(micro)
        if len(late) > rank:
            yield Kind.WEIGHT, late.popleft()
    for micro in late:
        yield Kind.WEIGHT, micro


def _interleaved(rank: int, devices: int, stages: list[int], micros: int) -> Iterator[Action]:
    """Interleaved 1F1B of Megatron-LM, also for numbers of micro-batches that the number of devices does not divide."""
    rounds = max(1, micros // devices)
    starts = [-(-at * micros // rounds) for at in range(rounds + 1)]  # the first group is the largest
    groups = [range(start, stop) for start, stop in itertools.pairwise(starts)]
    forward = [(stage, micro) for group in groups for stage in stages for micro in group]
    backward = [(stage, micro) for group in groups for stage in reversed(stages) for micro in group]
    ahead = min(2 * (devices - rank - 1) + (len(stages) - 1) * len(groups[0]), len(forward))
    for stage, micro in forward[:ahead]:
        yield Action(Kind.FORWARD, stage, micro)
    for at, (stage, micro) in enumerate(backward):
        if at + ahead < len(forward):
            yield Action(Kind.FORWARD, *forward[at + ahead])
        yield Action(Kind.BACKWARD, stage, micro)
