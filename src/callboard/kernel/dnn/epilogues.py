"""Epilogues of convolutions and matrix products, as one expression of :mod:`callboard.kernel.elementwise`."""

from callboard.core.dtype import DTYPES, DType
from callboard.kernel.dnn.activations import ACTIVATIONS
from callboard.kernel.elementwise.program import Program, compiled

__all__ = ["epilogue_of"]


def epilogue_of(
    sums: DType,
    result: DType,
    *,
    bias: DType | None = None,
    residual: DType | None = None,
    activation: str | None = None,
    scale: float | None = None,
) -> Program:
    """``activation(scale * sums + bias + residual)``, rounded once to ``result``.

    Args:
        sums: dtype of the first operand.
        result: The dtype of the stored result; i8 is rounded to even and saturated.
        bias, residual: dtypes of the operands behind it, if they are given.
        activation: A key of :data:`~callboard.kernel.dnn.activations.ACTIVATIONS`, with its default parameter; None for
            none.
        scale: A factor of the sums.
    """
    work = DTYPES["f64"] if sums.name == "f64" else DTYPES["f32"]
    text = f"x = {work}(y)" + (f" * {scale!r}" if scale is not None else "")
    arrays = [sums]
    for name, dtype in (("b", bias), ("r", residual)):
        if dtype is not None:
            arrays.append(dtype)
            text += f"; x = x + {work}({name})"
    if activation is None:
        text += "; out = x"
    else:
        formula = ACTIVATIONS[activation]
        text += (f"; a = {formula.parameter!r}" if formula.parameter is not None else "") + f"; {formula.forward}"
    if result.name == "i8":
        text += "; out = minimum(maximum(rint(out), -128), 127)"
    return compiled(f"{text}; out = {result}(out)", tuple(arrays))
