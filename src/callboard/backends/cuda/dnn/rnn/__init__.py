"""Recurrent networks on a GPU, through cuDNN's C API: its graph API has no recurrent networks."""

from typing import Any

from callboard.backends.cuda.dnn.rnn.plans import BackwardPlan, ForwardPlan, ForwardTrainingPlan
from callboard.core.library import Entry
from callboard.core.op import info_of
from callboard.core.operand import Operand
from callboard.kernel.dnn.rnn.messages import Recurrent, RnnBackward, RnnForward, RnnForwardTraining

__all__ = ["TABLE"]


def refuses(op: Recurrent[Any]) -> str | None:
    """Arrays have no gaps."""
    for leaf in info_of(type(op)).leaves(op):
        if isinstance(leaf.value, Operand) and not leaf.value.layout.contiguous:
            return f"{leaf.name} is {leaf.value.layout!r}, with gaps or in another order: pass dev.copy({leaf.name})"
    return None


TABLE: dict[type[Any], Entry] = {
    RnnForward: Entry(ForwardPlan, refuses=refuses),
    RnnForwardTraining: Entry(ForwardTrainingPlan, refuses=refuses),
    RnnBackward: Entry(BackwardPlan, refuses=refuses),
}
