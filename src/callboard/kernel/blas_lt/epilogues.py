"""Epilogues: operations on a product before it is stored. The sixteen of cuBLASLt, by their names in lower case.

cuBLASLt counts from a column-major result. Our results are row-major, so its ``BGRADA`` sums our ``b``: here
``bgrad_a`` and ``bgrad_b`` name our operands.
"""

from typing import Literal, NamedTuple, get_args

__all__ = ["AUX", "BGRAD", "EPILOGUES", "Activation", "AuxEpilogue", "BgradEpilogue", "Epilogue", "Traits"]

Activation = Literal["relu", "gelu"]
"""``max(x, 0)``; ``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``."""

Epilogue = Literal["none", "relu", "bias", "relu_bias", "gelu", "gelu_bias", "drelu", "dgelu"]
"""Epilogues with ``out`` as the only output."""
AuxEpilogue = Literal["relu_aux", "relu_aux_bias", "gelu_aux", "gelu_aux_bias"]
"""Epilogues that also output the data for the backward pass."""
BgradEpilogue = Literal["drelu_bgrad", "dgelu_bgrad", "bgrad_a", "bgrad_b"]
"""Epilogues that also output the gradient of a bias."""


class Traits(NamedTuple):
    """The properties of an epilogue.

    Attributes:
        activation: Activation of the forward pass; with ``backward``, the activation whose derivative is used.
        backward: The product is multiplied by the derivative at ``aux``.
        bias: A bias is added first.
        aux: An auxiliary array is written (forward) or read (backward).
        grad: The array that is summed to the gradient of a bias: ``"out"`` over its rows, ``"a"`` or ``"b"`` over the
            inner extent.
    """

    activation: Activation | None = None
    backward: bool = False
    bias: bool = False
    aux: bool = False
    grad: Literal["out", "a", "b"] | None = None


def _traits(name: str) -> Traits:
    words = name.split("_")
    backward = words[0] in ("drelu", "dgelu")
    activation: Activation | None = "relu" if "relu" in words[0] else "gelu" if "gelu" in words[0] else None
    if words[0] == "bgrad":
        return Traits(grad="a" if words[1] == "a" else "b")
    return Traits(
        activation, backward, "bias" in words, backward or "aux" in words, "out" if "bgrad" in words else None
    )


AUX: tuple[str, ...] = get_args(AuxEpilogue)
BGRAD: tuple[str, ...] = get_args(BgradEpilogue)
EPILOGUES: dict[str, Traits] = {name: _traits(name) for name in (*get_args(Epilogue), *AUX, *BGRAD)}
"""Every epilogue by name."""
