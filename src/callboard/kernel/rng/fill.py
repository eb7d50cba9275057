"""``Fill``: the base of all fills with random numbers."""

import math
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import UnsupportedOp
from callboard.core.op import Op, Outputs, info_of
from callboard.core.operand import Operand, Out, Placeholder, Role, Whole
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.rng.actor import RngActor
from callboard.kernel.rng.streams import (
    KINDS,
    MAX_DIMENSIONS,
    RngOrdering,
    is_kind,
    order_of,
    points_of,
    words_per_element,
)

__all__ = ["FLOATS", "INTEGERS", "Fill", "finite", "positive"]

FLOATS = tuple(DTYPES[name] for name in ("f16", "bf16", "f32", "f64"))
INTEGERS = tuple(DTYPES[name] for name in ("i32", "i64", "u32", "u64"))


class Fill(Op[RngActor, GpuRef]):
    """Base of the fills: a stream, a place in it, and the array to fill, in row-major order of its elements.

    Class attributes:
        dtypes: Accepted dtypes of ``out``.
        kinds: The generators that serve it.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    kinds: ClassVar[Sequence[str]] = tuple(KINDS)

    out: Out
    kind: str = "philox"
    ordering: RngOrdering = "default"
    seed: Whole = 0
    position: Whole = 0

    def __post_init__(self) -> None:
        if not is_kind(self.kind):
            raise refuse(self, f"kind {self.kind!r} is not a generator; use one of {', '.join(KINDS)}")
        if self.kind not in self.kinds:
            raise UnsupportedOp(
                f"{self.tag()}: {self.kind} has no subsequence for every element, which these numbers need; "
                f"use {' or '.join(self.kinds)}"
            )
        super().__post_init__()
        if self.seed < 0 or self.position < 0:
            name = "seed" if self.seed < 0 else "position"
            raise refuse(self, f"{name} is {getattr(self, name)}; it must lie between 0 and 2**64 - 1")
        if self.ordering != "default":
            self._settle_ordering()
        for name, role in info_of(type(self)).roles.items():
            if role is Role.SCALAR and isinstance(getattr(self, name), Operand):
                raise TypeError(f"{self.tag()}: {name} is an array; pass a number")
        if not KINDS[self.kind].seeded and self.seed != 0:
            raise refuse(self, f"seed is {self.seed} and {self.kind} has none; use scrambled_{self.kind}")
        if not isinstance(self.out, Placeholder):  # in a context host numbers are not known yet
            self.check_position()
            self.check_numbers()

    def _settle_ordering(self) -> None:
        """Say the default order where another name means the same."""
        try:
            msgspec.structs.force_setattr(self, "ordering", order_of(self.kind, self.ordering))
        except UnsupportedOp as e:
            raise UnsupportedOp(f"{self.tag()}: {e}") from None

    @classmethod
    def tag(cls) -> str:
        """``"rng.fill_uniform"``."""
        return info_of(cls).tag

    @classmethod
    def step(cls, dtype: DType) -> int:
        """Words of a pseudo-random stream that an element takes, and whose multiples positions are."""
        return words_per_element(dtype)

    @classmethod
    def taken(cls, kind: str, out: Operand) -> int:
        """The number of positions a fill of ``out`` advances."""
        return points_of(out.layout)[0] if KINDS[kind].quasi else out.size * cls.step(out.dtype)

    def check_position(self) -> None:
        """The stream has these numbers."""
        at, taken, kind = self.position, self.taken(self.kind, self.out), KINDS[self.kind]
        period = 2**32 if kind.quasi and kind.bits == 32 else 2**63
        if at + taken > period:
            raise refuse(
                self,
                f"position {at} and {taken} more reach beyond the {period} that {self.kind} has; "
                f"use another seed{' or the kind of 64 bits' if period == 2**32 else ''}",
            )
        if not kind.quasi and at % (step := self.step(self.out.dtype)):
            raise refuse(
                self, f"position {at} is odd and an element of {self.out.dtype} takes {step} words; use {at + 1}"
            )

    def check_numbers(self) -> None:
        """The parameters are those of a distribution."""

    def infer(self) -> Outputs:
        if self.out.dtype not in self.dtypes:
            names = ", ".join(d.name for d in self.dtypes)
            raise refuse(self, f"out is {self.out.layout!r}; its dtype must be one of {names}")
        if KINDS[self.kind].quasi and points_of(self.out.layout)[1] > MAX_DIMENSIONS:
            raise refuse(self, f"out is {self.out.layout!r}; {self.kind} has at most {MAX_DIMENSIONS} dimensions")
        return {"out": self.out.layout}


def finite(op: Fill, *names: str) -> None:
    """Parameters are finite real numbers."""
    for name in names:
        value = getattr(op, name)
        if isinstance(value, complex) or not math.isfinite(value):
            raise refuse(op, f"{name} is {value!r}; it must be a finite real number")


def positive(op: Fill, *names: str) -> None:
    """Parameters are finite and > 0."""
    finite(op, *names)
    for name in names:
        if getattr(op, name) <= 0:
            raise refuse(op, f"{name} is {getattr(op, name)!r}; it must be positive")
