"""Attention whose queries, keys and values are of 8 bits, and its gradients."""

import math
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from callboard.core.dtype import DTYPES, DType, dtypes_of
from callboard.core.layout import layout_of
from callboard.core.mode import Mode
from callboard.core.op import Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.attention.forward import lse_layout
from callboard.kernel.attention.problem import tensor_of
from callboard.kernel.attention.scores import Problem, Scores
from callboard.kernel.checks import refuse

__all__ = ["BackwardFp8", "ForwardFp8", "Fp8Gradients", "Fp8Result"]

R_co = TypeVar("R_co", covariant=True)
E4M3 = DTYPES["f8_e4m3"]
FP8 = dtypes_of("f8_e4m3 f8_e5m2")
ONE = layout_of(DTYPES["f32"], ())


class Fp8Result(NamedTuple, Generic[Mode]):
    """The result of attention in fp8.

    Attributes:
        out, lse: See ``attention.forward``; ``out`` is fp8.
        amax: 0-d, f32: the largest absolute value of ``out`` before ``scale_out``.
    """

    out: GpuRef[Mode]
    lse: GpuRef[Mode]
    amax: GpuRef[Mode]


class Fp8Gradients(NamedTuple, Generic[Mode]):
    """Gradients in fp8.

    Attributes:
        dq, dk, dv: Shapes of ``q``, ``k`` and ``v``.
        amax_dq, amax_dk, amax_dv: 0-d, f32: their largest absolute values before they are scaled.
    """

    dq: GpuRef[Mode]
    dk: GpuRef[Mode]
    dv: GpuRef[Mode]
    amax_dq: GpuRef[Mode]
    amax_dk: GpuRef[Mode]
    amax_dv: GpuRef[Mode]


class Narrow(Scores[R_co]):
    """Base of both messages; not sent itself. The fields are documented in ``ForwardFp8``."""

    dtypes: ClassVar[tuple[DType, ...] | None] = (E4M3,)

    q: In
    k: In
    v: In
    scale_q: In | None = None
    scale_k: In | None = None
    scale_v: In | None = None

    def check_narrow(self, *names: str) -> None:
        """The numbers that operands and results are multiplied by.

        Raises:
            ShapeError: One is no 0-d f32.
        """
        for name in names:
            x = getattr(self, name)
            if x is not None and x.layout != ONE:
                raise refuse(self, f"{name} is {x.layout!r}, expected a 0-d f32")


class ForwardFp8(Narrow[Fp8Result], tag="attention.forward_fp8"):
    """Attention whose operands and result are of 8 bits, each with a scale of its own (``Fa3FwdFp8``).

    Args:
        q, k, v: See :class:`~callboard.kernel.attention.Forward`; the dtype is f8_e4m3.
        out: Shape and dtype of ``q``, but with the head dim of ``v``; a new row-major array when None. Values out of
            range saturate to the largest finite number.
        lse: See ``attention.forward``; f32.
        amax: 0-d, f32: the largest absolute value of ``out`` before ``scale_out``, from which the scale of a next call
            is made.
        scale_q, scale_k, scale_v: 0-d, f32: factors of the operands, ``amax / 448`` if they were divided by it. None:
            1.
        scale_out: 0-d, f32: what ``out`` is multiplied by before it is rounded. None: 1.

    All other fields are those of ``attention.forward``; CUDA has fewer of them, and refuses the others before anything
    is sent. Scores and sums are f32. On CUDA probabilities are rounded to f8_e4m3 before they meet the values, since
    tensor cores take both alike; the CPU keeps them in f32 (Shah et al., "FlashAttention-3", arXiv:2407.08608).
    """

    returns: ClassVar[tuple[str, ...]] = ("out", "lse", "amax")
    results: ClassVar[type[Any] | None] = Fp8Result

    out: Out | None = None
    lse: Out | None = None
    amax: Out | None = None
    scale_out: In | None = None

    def problem(self) -> Problem:
        """Extents and settings, checked; raises as :meth:`infer`."""
        self.check_narrow("scale_q", "scale_k", "scale_v", "scale_out")
        return self.problem_of(self.q, self.k, self.v)

    def infer(self) -> Outputs:
        problem = self.problem()
        if self.out is not None:
            tensor_of(self, "out", self.out.layout, self.layout)
        shape = (*self.q.shape[:-1], problem.dim_v)
        return {"out": layout_of(problem.dtype, shape), "lse": lse_layout(self, problem, self.q.shape), "amax": ONE}


class BackwardFp8(Narrow[Fp8Gradients], tag="attention.backward_fp8"):
    """The gradients of ``attention.forward_fp8`` in ``q``, ``k`` and ``v``.

    Args:
        dout: Gradient of ``out``; its shape, f8_e4m3 or f8_e5m2.
        q, k, v, out, lse: Operands and results of the forward call.
        dq, dk, dv: Shapes of ``q``, ``k`` and ``v``, dtype of ``dout``; new row-major arrays when None.
        amax_dq, amax_dk, amax_dv: 0-d, f32: their largest absolute values before they are scaled.
        scale_q, scale_k, scale_v: Scales passed to the forward call.
        descale_out: 0-d, f32: what ``out`` is multiplied by, the reciprocal of that call's ``scale_out``. None: 1.
        scale_dout: 0-d, f32: what ``dout`` is multiplied by. None: 1.
        scale_dq, scale_dk, scale_dv: 0-d, f32: factors of the gradients before they are rounded. None: 1.
        score_gain: Factor of the gradients of scores, a power of two: they are multiplied by it before they are rounded
            to 8 bits between two products, and divided by it afterwards. Used on CUDA; the CPU keeps these gradients in
            f32.
        deterministic: Sums are taken in a fixed order, so that equal calls give equal bits.

    All other fields are those of that call.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = (E4M3,)
    returns: ClassVar[tuple[str, ...]] = ("dq", "dk", "dv", "amax_dq", "amax_dk", "amax_dv")
    results: ClassVar[type[Any] | None] = Fp8Gradients

    dout: In
    out: In
    lse: In
    dq: Out | None = None
    dk: Out | None = None
    dv: Out | None = None
    amax_dq: Out | None = None
    amax_dk: Out | None = None
    amax_dv: Out | None = None
    descale_out: In | None = None
    scale_dout: In | None = None
    scale_dq: In | None = None
    scale_dk: In | None = None
    scale_dv: In | None = None
    score_gain: float = 1.0
    deterministic: bool = False

    def problem(self) -> Problem:
        """Extents and settings, checked; raises as :meth:`infer`."""
        self.check_narrow(
            "scale_q", "scale_k", "scale_v", "descale_out", "scale_dout", "scale_dq", "scale_dk", "scale_dv"
        )
        if not (0 < self.score_gain < math.inf):
            raise refuse(self, f"score_gain is {self.score_gain}; it must be positive and finite")
        problem = self.problem_of(self.q, self.k, self.v)
        if self.dout.dtype not in FP8:
            raise refuse(
                self, f"dout is {self.dout.layout!r}; its dtype must be one of {', '.join(d.name for d in FP8)}"
            )
        shape = (*self.q.shape[:-1], problem.dim_v)
        for name, x, dtype in (("out", self.out, problem.dtype), ("dout", self.dout, self.dout.dtype)):
            tensor_of(self, name, x.layout, self.layout)
            if x.dtype is not dtype or x.shape != shape:
                raise refuse(self, f"{name} is {x.layout!r}, expected {layout_of(dtype, shape)!r}")
        lse = lse_layout(self, problem, self.q.shape)
        if self.lse.dtype is not lse.dtype or self.lse.shape != lse.shape:
            raise refuse(self, f"lse is {self.lse.layout!r}, expected {lse!r}, as attention.forward_fp8 gives it")
        for name in ("dq", "dk", "dv"):
            given = getattr(self, name)
            if given is not None:
                tensor_of(self, name, given.layout, self.layout)
        return problem

    def infer(self) -> Outputs:
        self.problem()
        made = {
            f"d{name}": layout_of(self.dout.dtype, x.shape)
            for name, x in zip("qkv", (self.q, self.k, self.v), strict=True)
        }
        return made | dict.fromkeys(("amax_dq", "amax_dk", "amax_dv"), ONE)
