"""The size and state of the reserve that a training pass leaves for the backward pass."""

from callboard.core.dtype import DType
from callboard.core.errors import NumericalError
from callboard.kernel.dnn.rnn.params import RnnParams

__all__ = ["FILLED", "HEADER", "USED", "check_filled", "reserve_bytes"]

HEADER = 256
"""Bytes at the beginning: whether a forward pass has filled it and no backward pass has used it yet."""
FILLED, USED = 0x46494C4C, 0x55534544
"""The first word of the header, of 32 bits: after a forward pass, and after the backward pass that it was for."""
KEPT = {"rnn_relu": 2, "rnn_tanh": 2, "lstm": 6, "gru": 7}
"""Numbers stored per number of a state for the backward pass: the larger of the needs of cuDNN and the CPU.

cuDNN 9.19 keeps 1, 1, 5 and 6 for each number of a layer, and one more of each layer but the last: ``6 * layers - 1``
for an LSTM. The CPU keeps the gates, the states and, of an LSTM and a GRU, one more: 2, 2, 6 and 5.
"""
SLACK = 2048
"""Bytes of a layer and direction beside that, for the beginnings of arrays and of cuDNN's reserve."""


def reserve_bytes(params: RnnParams, dtype: DType, steps: int, dropout: bool) -> int:
    """Bytes of the reserve: the same on every backend, so that it is known before anything is sent.

    Args:
        params: The network.
        dtype: The dtype of the arrays.
        steps: Steps of all sequences together, padding included.
        dropout: Whether numbers between layers are dropped: their masks and the remaining numbers are then stored, too.
    """
    cells = params.num_layers * params.directions
    projected = params.hidden_size + 2 * params.proj_size if params.proj_size else 0
    kept = cells * steps * (KEPT[params.mode] * params.hidden_size + projected)
    between = (params.num_layers - 1) * steps * params.output_size if dropout else 0
    total = HEADER + kept * dtype.itemsize + cells * SLACK + between * (2 * dtype.itemsize + 1)
    return -(-total // HEADER) * HEADER


def check_filled(word: int) -> None:
    """Check that a reserve is as a forward pass leaves it.

    Raises:
        NumericalError: The reserve is not in that state; names the reason.
    """
    if word == USED:
        why = "has been used up by another backward pass; give that one a copy of it (dev.copy), made before it"
    else:
        why = "holds no training pass; pass the reserve that dnn.rnn_forward_training made"
    if word != FILLED:
        raise NumericalError(f"dnn.rnn_backward: reserve {why}", info=-1)
