"""Recurrent networks on the CPU: NumPy, with explicit formulas for the gradients."""

from typing import Any

from callboard.backends.cpu.dnn.rnn.plans import backward, forward, forward_training
from callboard.core.library import Entry
from callboard.kernel.dnn.rnn.messages import RnnBackward, RnnForward, RnnForwardTraining

__all__ = ["TABLE"]

TABLE: dict[type[Any], Entry] = {
    RnnForward: Entry(lambda _, op: forward(op), inline=True),
    RnnForwardTraining: Entry(lambda _, op: forward_training(op), inline=True),
    RnnBackward: Entry(lambda _, op: backward(op), inline=True),
}
