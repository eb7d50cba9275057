"""``Launch``: one kernel, once."""

from collections.abc import Sequence
from typing import Any, ClassVar

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of
from callboard.core.op import Op, StructOutputs, info_of
from callboard.core.operand import ByValue, In, InOut, Operand, Out
from callboard.kernel.nvrtc.geometry import LaunchSpec
from callboard.kernel.nvrtc.source import Source

__all__ = ["Launch", "Launched", "in_order"]

FIELDS = {"in": "ins", "inout": "inouts", "out": "outs"}


class Launched(Op[Any, Any]):
    """A launch of a user kernel; returns a tuple of the arrays it writes, outputs first.

    The arrays and numbers of each kind are in the order of the kernel's parameters; ``spec`` has the order of the
    kinds. :func:`callboard.kernel` and the handles of ``dev.nvrtc`` and ``dev.module`` create the message.

    Args:
        ins: Arrays that it reads, without gaps.
        inouts: Arrays that it reads and writes, or that it writes only partly.
        outs: Arrays that it writes completely; new ones of ``spec.shapes`` when None.
        numbers: Numbers passed by value; integers for integer parameters.
        spec: Name, parameters and threads.
    """

    returns: ClassVar[tuple[str, ...]] = ("outs", "inouts")

    spec: LaunchSpec
    ins: tuple[In, ...] = ()
    inouts: tuple[InOut, ...] = ()
    outs: tuple[Out, ...] | None = None
    numbers: tuple[ByValue, ...] = ()

    @property
    def label(self) -> str:
        return f"{info_of(type(self)).tag}({self.spec.name})"

    def infer(self) -> StructOutputs:
        tag = self.label
        kinds = self.spec.kinds
        for kind, field in FIELDS.items():
            dtypes = [dtype for role, dtype in map(_split, kinds) if role == kind]
            given: tuple[Operand, ...] | None = getattr(self, field)
            if given is None:
                continue
            if len(given) != len(dtypes):
                raise ShapeError(f"{tag}: {field} has {len(given)} arrays; the parameters name {len(dtypes)}")
            for at, (array, dtype) in enumerate(zip(given, dtypes, strict=True)):
                if dtype and array.layout.dtype.name != dtype:
                    raise ShapeError(f"{tag}: {field}[{at}] is {array.layout!r}, expected {dtype}")
                if not array.layout.contiguous:
                    raise ShapeError(f"{tag}: {field}[{at}] is {array.layout!r}; it must have no gaps (dev.copy)")
        numbers = sum(role == "number" for role, _ in map(_split, kinds))
        if numbers != len(self.numbers):
            raise ShapeError(f"{tag}: numbers has {len(self.numbers)}; the parameters name {numbers}")
        if self.outs is not None:
            return {"outs": tuple(out.layout for out in self.outs)}
        dtypes = [dtype for role, dtype in map(_split, kinds) if role == "out"]
        if len(dtypes) != len(self.spec.shapes) or not all(dtypes):
            raise ShapeError(f"{tag}: spec.shapes has {len(self.spec.shapes)} shapes for {len(dtypes)} outputs")
        return {"outs": tuple(layout_of(DTYPES[d], s) for d, s in zip(dtypes, self.spec.shapes, strict=True))}


class Launch(Launched, tag="nvrtc.launch"):
    """A kernel in CUDA C++, compiled when it is first launched; on a CPU its NumPy body.

    Args:
        spec: Name, parameters and threads.
        source: The text and how it is compiled.
        body: The NumPy body, encoded by :func:`callboard.kernel.nvrtc.bodies.packed`; empty if there is none.
        ins: Arrays that it reads, without gaps.
        inouts: Arrays that it reads and writes, or that it writes only partly.
        outs: Arrays that it writes completely; new ones of ``spec.shapes`` when None.
        numbers: Numbers passed by value; integers for integer parameters.
    """

    source: Source
    body: bytes = b""


def in_order(
    spec: LaunchSpec, ins: Sequence[Any], inouts: Sequence[Any], outs: Sequence[Any], numbers: Sequence[Any]
) -> list[Any]:
    """The arguments of a launch in the order of the kernel's parameters; for a backend."""
    given = {"in": iter(ins), "inout": iter(inouts), "out": iter(outs), "number": iter(numbers)}
    return [next(given[_split(kind)[0]]) for kind in spec.kinds]


def _split(kind: str) -> tuple[str, str]:
    """Role and dtype of an entry of ``LaunchSpec.kinds``; a number's role is ``"number"``."""
    role, _, dtype = kind.partition(" ")
    return (role, dtype) if role in FIELDS else ("number", role)
