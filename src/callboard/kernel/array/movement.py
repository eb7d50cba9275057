"""Elements written from a rule: converted, or numbered."""

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Number, Operand, Out
from callboard.core.ref import GpuRef
from callboard.kernel.array.actor import ArrayActor
from callboard.kernel.checks import refuse

__all__ = ["Arange", "Cast"]


class Cast(Op[ArrayActor, GpuRef], tag="array.cast"):
    """``out = src``, each element converted to ``dtype``, between any strides.

    Floats are rounded to the nearest, ties to even; values out of range become infinite, or follow ``ml_dtypes`` if the
    dtype has no infinity. A float becomes an integer by truncation; values out of range, and NaN, become an unspecified
    integer. Integers wrap around. A number becomes the bool True if it is not 0. A real number is the real part of a
    complex one.

    Args:
        src: Any dtype, shape and strides. A complex one becomes complex or bool only: take its real part first.
        dtype: The dtype of the result; stored by name.
        out: Array of that dtype and of the same shape, any strides; a new row-major array when None. Must not overlap
            ``src``.
    """

    src: In
    dtype: DTypeLike
    out: Out | None = None

    def infer(self) -> Outputs:
        dtype = as_dtype(self.dtype)
        if self.src.dtype.is_complex and not (dtype.is_complex or dtype.kind == "bool"):
            raise refuse(
                self, f"src is {self.src.layout!r} and dtype is {dtype}: take its real part first (xp.real, xp.imag)"
            )
        return {"out": layout_of(dtype, self.src.shape)}


class Arange(Op[ArrayActor, GpuRef], tag="array.arange"):
    """``out[i] = start + i * step``.

    Args:
        length: Number of elements, >= 0.
        dtype: The dtype of the result; stored by name. Floats and complex numbers are computed in f64 and rounded once.
            Integers are computed in 64 bits and wrap around. A bool is True if the number is not 0.
        start, step: Numbers: integers for integers, complex ones for complex arrays only.
        out: Array ``[length]`` of that dtype, any strides; a new array when None.
    """

    length: int
    dtype: DTypeLike
    start: Number = 0
    step: Number = 1
    out: Out | None = None

    def infer(self) -> Outputs:
        dtype = as_dtype(self.dtype)
        if self.length < 0:
            raise refuse(self, f"length is {self.length}; it must be >= 0")
        for name, value in (("start", self.start), ("step", self.step)):
            if isinstance(value, Operand):
                raise refuse(self, f"{name} is {value.layout!r}; pass a number")
            if isinstance(value, complex) and not dtype.is_complex:
                raise refuse(self, f"{name} is complex, and dtype is {dtype}")
            if not isinstance(value, int) and dtype.is_integer:
                raise refuse(self, f"{name} is not an integer, and dtype is {dtype}")
        return {"out": layout_of(dtype, (self.length,))}
