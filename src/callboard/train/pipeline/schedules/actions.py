"""``Action``: what a device does for one stage and one micro-batch, and what must have been done before."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

__all__ = ["Action", "Kind", "Table", "needs"]


class Kind(StrEnum):
    """What is computed.

    Attributes:
        FORWARD: The outputs of the stage.
        BACKWARD: The gradients of its inputs and of its weights.
        INPUT: The gradients of its inputs only, for the stage before.
        WEIGHT: Those of its weights, after INPUT.
    """

    FORWARD = "F"
    BACKWARD = "B"
    INPUT = "I"
    WEIGHT = "W"


class Action(NamedTuple):
    """One computation of a device."""

    kind: Kind
    stage: int
    micro: int

    def __str__(self) -> str:
        return f"{self.kind}{self.micro} of stage {self.stage}"


Table = Sequence[Sequence[Action]]
"""For each device its actions, in order."""


def needs(action: Action, stages: int, split: bool) -> Iterator[Action]:
    """What must be done before an action.

    Args:
        action: The action.
        stages: Stages of the model.
        split: Its backward passes are in two parts.
    """
    kind, stage, micro = action
    back = Kind.INPUT if split else Kind.BACKWARD
    if kind is Kind.FORWARD:
        if stage:
            yield Action(Kind.FORWARD, stage - 1, micro)
    elif kind is Kind.WEIGHT:
        yield Action(Kind.INPUT, stage, micro)
    else:
        yield Action(Kind.FORWARD, stage, micro)
        if stage + 1 < stages:
            yield Action(back, stage + 1, micro)
