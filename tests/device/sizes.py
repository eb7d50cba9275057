"""A library whose outputs have extents that depend on data, and whose operands come as struct operands."""

from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
import numpy as np
from tests.device.events import Events

from callboard.backends.cpu.device import CpuBackend
from callboard.backends.cpu.views import array_at
from callboard.core.dtype import DTYPES
from callboard.core.errors import LibraryError, ShapeError
from callboard.core.layout import BoundedExtent, layout_of
from callboard.core.library import Library, launches, prepares, sizes
from callboard.core.op import Op, Outputs, StructOutputs
from callboard.core.operand import In, Operand, Out, Placeholder, Role, Scalar, StructOperand
from callboard.core.ref import GpuRef

PATIENCE = 20.0

EVENTS = Events()
"""Tests set them; measures wait for them (for ``PATIENCE`` at most)."""

F32, I64 = DTYPES["f32"], DTYPES["i64"]


class PairsRef(StructOperand, tag="pairs"):
    """Some elements of a vector: their places and their values."""

    values: Annotated[GpuRef[Any], Role.IN]
    places: Annotated[GpuRef[Any], Role.IN]
    length: int


class EveryRef(StructOperand, tag="every"):
    """Every so manieth element of a vector, from the first."""

    values: Annotated[GpuRef[Any], Role.IN]
    step: int
    length: int


class SizesActor:
    """Serves the ops of this file."""


class Larger(Op[SizesActor, GpuRef], tag="sizes.larger"):
    """The elements of ``x`` above ``limit``; with ``out`` and ``count``, into a given array.

    ``how``: what the size query does: waits for an event, or fails, or lies.
    """

    x: In
    limit: Scalar = 0.0
    out: Out | None = None
    count: Out | None = None
    how: str = ""

    def infer(self) -> Outputs:
        if self.x.ndim != 1:
            raise ShapeError(f"sizes.larger: x is {self.x.layout!r}; pass a vector")
        if self.out is None:
            return {"out": layout_of(self.x.dtype, (BoundedExtent(self.x.size),))}
        return {"out": layout_of(self.x.dtype, self.out.shape), "count": layout_of(I64, ())}


class Divided(NamedTuple):
    above: GpuRef[Any]
    rest: GpuRef[Any]
    whole: GpuRef[Any]


class Divide(Op[SizesActor, Divided], tag="sizes.divide"):
    """Elements above 0, the others, and a copy of all: two open outputs and a closed one."""

    returns: ClassVar[tuple[str, ...]] = ("above", "rest", "whole")
    results: ClassVar[type[Any] | None] = Divided

    x: In
    above: Out | None = None
    rest: Out | None = None
    whole: Out | None = None

    def infer(self) -> Outputs:
        n = self.x.size
        return {
            "above": layout_of(self.x.dtype, (BoundedExtent(n),)),
            "rest": layout_of(self.x.dtype, (BoundedExtent(n), 2)),
            "whole": layout_of(self.x.dtype, (n,)),
        }


class Pack(Op[SizesActor, PairsRef], tag="sizes.pack"):
    """The elements of ``x`` other than 0, as pairs: a struct operand that is made."""

    x: In
    out: Annotated[PairsRef, Role.OUT] | None = None

    def infer(self) -> StructOutputs:
        n = BoundedExtent(self.x.size) if self.out is None else self.out.values.size
        values, places = layout_of(self.x.dtype, (n,)), layout_of(I64, (n,))
        return {"out": PairsRef(values=_at(values), places=_at(places), length=self.x.size)}


class Unpack(Op[SizesActor, GpuRef], tag="sizes.unpack"):
    """The vector that ``a`` says, times ``scale``; 0 elsewhere."""

    a: PairsRef | EveryRef
    scale: Scalar = 1.0
    out: Out | None = None

    def infer(self) -> Outputs:
        return {"out": layout_of(self.a.values.dtype, (self.a.length,))}


class Doubled(Op[SizesActor, GpuRef], tag="sizes.doubled"):
    """``2 * x``, by a routine that holds the thread that calls it, if not ``at_once``. ``how`` as for ``Larger``."""

    x: In
    out: Out | None = None
    how: str = ""
    at_once: bool = False

    def infer(self) -> Outputs:
        return {"out": layout_of(self.x.dtype, self.x.shape)}


def _at(layout: Any) -> Any:
    return Placeholder(layout)


class Sized(msgspec.Struct):
    """A plan: the op, and what its size query has found."""

    op: Any
    found: list[Any] = []


class SizesLibrary(Library):
    name = "sizes"
    sized: ClassVar[list[str]] = []

    @prepares(Larger, Divide, Doubled, Pack)
    def plan(self, op: Op[Any, Any]) -> Sized:
        return Sized(op)

    @sizes(Larger)
    def size_larger(self, plan: Sized, x: int, limit: float, out: None, count: None) -> Any:
        op: Larger = plan.op
        self.sized.append(op.how)
        if op.how == "fail":
            raise LibraryError("no", "sizes", 5)
        if op.how == "crash":
            raise RuntimeError("no")
        if op.how == "lie":
            return [(op.x.size + 1,)]
        if op.how == "few":
            return []
        if op.how and not EVENTS[op.how].wait(PATIENCE):
            raise TimeoutError(f"nobody set {op.how}")
        values = array_at(x, op.x.layout)
        plan.found = [values[values > limit]]
        return [plan.found[0].shape]

    @launches(Larger)
    def larger(self, stream: Any, plan: Sized, x: int, limit: float, out: int, count: int | None) -> Any:
        op: Larger = plan.op
        if op.out is None:
            return stream.run("sizes", _write, plan.found, [out])

        def work() -> None:
            assert op.out is not None
            values = array_at(x, op.x.layout)
            values = values[values > limit]
            into = array_at(out, op.out.layout)
            into[: values.size] = values[: into.size]
            if count is not None:
                array_at(count, layout_of(I64, ()))[...] = values.size

        return stream.run("sizes", work)

    @sizes(Divide)
    def size_divide(self, plan: Sized, x: int, above: None, rest: None, whole: None) -> Any:
        values = array_at(x, plan.op.x.layout)
        rest_values = np.repeat(values[values <= 0][:, None], 2, 1)
        plan.found = [values[values > 0], rest_values, values.copy()]
        return [plan.found[0].shape, rest_values.shape]

    @launches(Divide)
    def divide(self, stream: Any, plan: Sized, x: int, above: int, rest: int, whole: int) -> Any:
        return stream.run("sizes", _write, plan.found, [above, rest, whole])

    @sizes(Doubled, always=lambda op: not op.at_once)
    def double(self, plan: Sized, x: int, out: int | None) -> Any:
        op: Doubled = plan.op
        self.sized.append(op.how)
        if op.how == "fail":
            raise LibraryError("no", "sizes", 5)
        if op.how and not EVENTS[op.how].wait(PATIENCE):
            raise TimeoutError(f"nobody set {op.how}")
        plan.found = [2 * array_at(x, op.x.layout)]
        return ()

    @launches(Doubled, captures=False)
    def doubled(self, stream: Any, plan: Sized, x: int, out: int) -> Any:
        if plan.op.at_once:
            return stream.run("sizes", lambda: _write([2 * array_at(x, plan.op.x.layout)], [out]))
        return stream.run("sizes", _write, plan.found, [out])

    @sizes(Pack)
    def size_pack(self, plan: Sized, x: int, out: None) -> Any:
        values = array_at(x, plan.op.x.layout)
        (places,) = np.nonzero(values)
        plan.found = [values[places], places.astype(np.int64)]
        return [places.shape, places.shape]

    @launches(Pack)
    def pack(self, stream: Any, plan: Sized, x: int, out: list[int]) -> Any:
        if plan.op.out is None:
            return stream.run("sizes", _write, plan.found, out)

        def work() -> None:
            values = array_at(x, plan.op.x.layout)
            into: PairsRef = plan.op.out
            (places,) = np.nonzero(values)
            array_at(out[0], into.values.layout)[: places.size] = values[places]
            array_at(out[1], into.places.layout)[: places.size] = places

        return stream.run("sizes", work)

    @launches(Unpack)
    def unpack(self, stream: Any, plan: Unpack, a: list[int], scale: float | int, out: int) -> Any:
        def work() -> None:
            into = array_at(out, layout_of(plan.a.values.dtype, (plan.a.length,)))
            into[...] = 0
            factor = array_at(scale, plan.scale.layout) if isinstance(plan.scale, Operand) else scale  # type: ignore[arg-type]
            values = array_at(a[0], plan.a.values.layout) * factor
            if isinstance(plan.a, PairsRef):
                into[array_at(a[1], plan.a.places.layout)] = values
            else:
                into[:: plan.a.step] = values

        return stream.run("sizes", work)


def _write(found: list[Any], addresses: list[int]) -> None:
    for values, address in zip(found, addresses, strict=True):
        array_at(address, layout_of(F32 if values.dtype == np.float32 else I64, values.shape))[...] = values


class SizesBackend(CpuBackend):
    """The CPU with the library of this file."""

    name = "sizes"

    def libraries(self) -> dict[str, type[Library]]:
        return {**super().libraries(), "sizes": SizesLibrary}
