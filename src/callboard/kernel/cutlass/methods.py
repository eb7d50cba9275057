"""The methods of ``dev.cutlass``."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple

import numpy as np

from callboard.core.dtype import DTypeLike
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.operand import Operand
from callboard.core.ref import GpuRef
from callboard.core.ref.hostarrays import refuse_masked
from callboard.core.reply import Reply
from callboard.kernel.api import Api
from callboard.kernel.cutlass.conv import Conv, ConvKind, ExplainConv
from callboard.kernel.cutlass.epilogue import EpilogueVisitorTree
from callboard.kernel.cutlass.explain import Explain
from callboard.kernel.cutlass.fused import Engine, inputs_of, reductions_of
from callboard.kernel.cutlass.gemm import Gemm, GroupedGemm
from callboard.kernel.cutlass.refit import Refit
from callboard.kernel.memory import Empty

__all__ = ["CutlassPlan", "FusedResult", "GroupedLayout", "Methods"]

GroupedLayout = Literal["uniform", "variable_m"]
"""Groups of equal numbers of rows, or of the numbers that ``offsets`` gives."""


class FusedResult(NamedTuple, Generic[Mode]):
    """The answer of a product whose epilogue has reductions.

    Attributes:
        out: The result.
        reductions: The additional results by name.
    """

    out: GpuRef[Mode]
    reductions: Mapping[str, GpuRef[Mode]]


class Methods(Api[Mode]):
    """Matrix products and convolutions with epilogues of one's own."""

    __slots__ = ()

    covers = frozenset({"gemm", "grouped_gemm", "conv", "explain", "explain_conv", "refit"})

    def gemm(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        epilogue: EpilogueVisitorTree | None = None,
        c: GpuRef[Mode] | None = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        out: GpuRef[Mode] | None = None,
        out_dtype: DTypeLike | None = None,
        accum: DTypeLike | None = None,
        scale_a: GpuRef[Mode] | None = None,
        scale_b: GpuRef[Mode] | None = None,
        tf32: bool | None = None,
        engine: Engine = "auto",
        **inputs: GpuRef[Mode],
    ) -> GpuRef[Mode]:
        """``epilogue(alpha * a @ b + beta * c)``; see :class:`~callboard.kernel.cutlass.Gemm`.

        Args:
            a: ``[m, k]``, or a batch ``[batch, m, k]``.
            b: ``[k, n]``, or a batch of them.
            epilogue: The tree; without reductions, which :meth:`gemm_reduced` also returns.
            c, alpha, beta, out, out_dtype, accum, scale_a, scale_b, tf32, engine: See the message.
            inputs: The arrays that the tree names.

        Raises:
            TypeError: An array of the tree is missing, or the tree has none of this name.
            ShapeError: A node or operand does not fit; names it.
        """
        settings: dict[str, Any] = {
            "c": c,
            "alpha": alpha,
            "beta": beta,
            "out": out,
            "out_dtype": out_dtype,
            "accum": accum,
            "scale_a": scale_a,
            "scale_b": scale_b,
            "tf32": tf32,
        }
        message = Gemm(a=a, b=b, engine=engine, **settings, **_bound("gemm", epilogue, inputs))
        answer: GpuRef[Mode] = self._submit(message)
        return answer

    def gemm_reduced(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        epilogue: EpilogueVisitorTree,
        c: GpuRef[Mode] | None = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        out: GpuRef[Mode] | None = None,
        out_dtype: DTypeLike | None = None,
        accum: DTypeLike | None = None,
        scale_a: GpuRef[Mode] | None = None,
        scale_b: GpuRef[Mode] | None = None,
        tf32: bool | None = None,
        engine: Engine = "auto",
        **inputs: GpuRef[Mode],
    ) -> FusedResult[Mode]:
        """Like :meth:`gemm`, with the reductions of the epilogue: ``out`` and ``reductions`` by name.

        Args:
            a, b, epilogue, c, alpha, beta, out, out_dtype, accum: See :meth:`gemm`.
            scale_a, scale_b, tf32, engine, inputs: See :meth:`gemm`.

        Raises:
            TypeError, ShapeError: See :meth:`gemm`.
        """
        settings: dict[str, Any] = {
            "c": c,
            "alpha": alpha,
            "beta": beta,
            "out": out,
            "out_dtype": out_dtype,
            "accum": accum,
            "scale_a": scale_a,
            "scale_b": scale_b,
            "tf32": tf32,
        }
        nodes = reductions_of(epilogue.nodes)
        bound = _bound("gemm_reduced", epilogue, inputs, reduced=True)
        problem_of = Gemm(a=a, b=b, engine=engine, **settings, **bound)
        problem = problem_of.problem()
        layouts = [problem_of.reduced(problem, node) for node in nodes]
        made = tuple(self._submit(Empty(shape=one.shape, dtype=one.dtype.name)) for one in layouts)
        answer = self._submit(Gemm(a=a, b=b, engine=engine, **settings, **bound, reductions=made))
        return FusedResult(answer, dict(zip([node.name for node in nodes], made, strict=True)))

    def grouped_gemm(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        offsets: "GpuRef[Mode] | Sequence[int] | np.ndarray[Any, Any] | None" = None,
        *,
        layout: GroupedLayout | None = None,
        epilogue: EpilogueVisitorTree | None = None,
        c: GpuRef[Mode] | None = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        out: GpuRef[Mode] | None = None,
        out_dtype: DTypeLike | None = None,
        accum: DTypeLike | None = None,
        engine: Engine = "auto",
        **inputs: GpuRef[Mode],
    ) -> GpuRef[Mode]:
        """Products of groups of rows with a matrix each; see :class:`~callboard.kernel.cutlass.GroupedGemm`.

        Args:
            a: ``[rows, k]``, the groups one after the other.
            b: ``[groups, k, n]``.
            offsets: The start of each group and the end, ``[groups + 1]``: i32 on the device, or numbers, which are
                checked here. None: groups of equal size.
            layout: ``"uniform"`` or ``"variable_m"``; None: by ``offsets``. For groups that also differ in ``n`` or
                ``k``, call :meth:`gemm` for each.
            epilogue, c, alpha, beta, out, out_dtype, accum, engine, inputs: See :meth:`gemm`.

        Raises:
            TypeError, ShapeError: See :meth:`gemm`; also raised for numbers in ``offsets`` that do not rise from 0 to
                the number of rows.
        """
        groups, rows = (b.shape[0] if b.ndim else 0), (a.shape[0] if a.ndim else 0)
        if layout is not None and (layout == "uniform") != (offsets is None):
            raise ShapeError(
                f"cutlass.grouped_gemm: layout is {layout!r} and offsets is {'None' if offsets is None else 'given'}; "
                "'variable_m' needs them, 'uniform' does not"
            )
        starts = offsets if isinstance(offsets, GpuRef) else self._put(_starts(offsets, groups, rows))
        settings: dict[str, Any] = {
            "c": c,
            "alpha": alpha,
            "beta": beta,
            "out": out,
            "out_dtype": out_dtype,
            "accum": accum,
        }
        bound = _bound("grouped_gemm", epilogue, inputs)
        answer: GpuRef[Mode] = self._submit(GroupedGemm(a=a, b=b, offsets=starts, engine=engine, **settings, **bound))
        return answer

    def conv(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        kind: ConvKind = "fprop",
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        extent: tuple[int, int] | None = None,
        epilogue: EpilogueVisitorTree | None = None,
        c: GpuRef[Mode] | None = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        out: GpuRef[Mode] | None = None,
        out_dtype: DTypeLike | None = None,
        accum: DTypeLike | None = None,
        engine: Engine = "auto",
        **inputs: GpuRef[Mode],
    ) -> GpuRef[Mode]:
        """A 2-d convolution or one of its gradients; see :class:`~callboard.kernel.cutlass.Conv`.

        Args:
            a, b: Images ``[images, h, w, channels]`` and filters ``[filters, r, s, channels]``; for gradients see the
                message.
            kind: ``"fprop"``, ``"dgrad"`` or ``"wgrad"``.
            stride, padding, dilation: For height and width, or one number for both.
            extent: For the gradients: height and width of what is computed.
            epilogue, c, alpha, beta, out, out_dtype, accum, engine, inputs: See :meth:`gemm`.

        Raises:
            TypeError, ShapeError: See :meth:`gemm`.
        """
        settings: dict[str, Any] = {
            "c": c,
            "alpha": alpha,
            "beta": beta,
            "out": out,
            "out_dtype": out_dtype,
            "accum": accum,
        }
        settings |= _moves(kind, stride, padding, dilation, extent)
        bound = _bound("conv", epilogue, inputs)
        answer: GpuRef[Mode] = self._submit(Conv(a=a, b=b, engine=engine, **settings, **bound))
        return answer

    def explain(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        epilogue: EpilogueVisitorTree | None = None,
        c: GpuRef[Mode] | None = None,
        out_dtype: DTypeLike | None = None,
        scale_a: GpuRef[Mode] | None = None,
        scale_b: GpuRef[Mode] | None = None,
        tf32: bool | None = None,
        engine: Engine = "auto",
        **inputs: GpuRef[Mode],
    ) -> Reply[str]:
        """The engine that serves :meth:`gemm` with these arguments, and its launches, in words.

        Args:
            a, b, epilogue, c, out_dtype, scale_a, scale_b, tf32, inputs: See :meth:`gemm`.
            engine: See :meth:`gemm`. With ``"cutlass"`` a template is compiled, if there is none yet.
        """
        bound = _bound("explain", epilogue, inputs)
        settings: dict[str, Any] = {"scale_a": scale_a, "scale_b": scale_b, "tf32": tf32, "engine": engine}
        answer: Reply[str] = self._submit(Explain(a=a, b=b, c=c, out_dtype=out_dtype, **settings, **bound))
        return answer

    def explain_conv(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        kind: ConvKind = "fprop",
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        extent: tuple[int, int] | None = None,
        epilogue: EpilogueVisitorTree | None = None,
        c: GpuRef[Mode] | None = None,
        out_dtype: DTypeLike | None = None,
        engine: Engine = "auto",
        **inputs: GpuRef[Mode],
    ) -> Reply[str]:
        """The engine that serves :meth:`conv` with these arguments, and its launches, in words.

        Args:
            a, b, kind, stride, padding, dilation, extent: See :meth:`conv`.
            epilogue, c, out_dtype, engine, inputs: See :meth:`explain`.
        """
        settings = _moves(kind, stride, padding, dilation, extent)
        bound = _bound("explain_conv", epilogue, inputs)
        message = ExplainConv(a=a, b=b, c=c, out_dtype=out_dtype, engine=engine, **settings, **bound)
        answer: Reply[str] = self._submit(message)
        return answer

    def refit(self, new: Sequence[GpuRef[Mode]], into: Sequence[GpuRef[Mode]]) -> Reply[None]:
        """Copy new values into arrays, all of them between two calls; :meth:`CutlassPlan.refit` does it by name.

        Args:
            new: The new values, row-major.
            into: Arrays of the same dtypes and shapes, row-major.
        """
        answer: Reply[None] = self._submit(Refit(new=tuple(new), into=tuple(into)))
        return answer

    def plan(
        self, b: GpuRef[Mode], *, epilogue: EpilogueVisitorTree | None = None, **inputs: GpuRef[Mode]
    ) -> "CutlassPlan[Mode]":
        """A product bound to a copy of ``b`` and of arrays of its epilogue; later calls give the rest.

        Args:
            b: ``[k, n]``, or a batch.
            epilogue: The tree.
            inputs: The arrays of the tree that are bound: weights, scales.
        """
        return CutlassPlan(self, b, epilogue, inputs)


class CutlassPlan(Generic[Mode]):
    """A product bound to weights; ``plan(a)`` computes it, :meth:`refit` replaces the weights.

    The plan owns copies, so that the caller's arrays may change. They belong to one generation of the device, as all
    arrays do: after a lost context, make the plan again.

    Args:
        api: ``dev.cutlass``.
        b: The second factor.
        epilogue: The tree.
        inputs: Arrays of the tree.
    """

    def __init__(
        self,
        api: Methods[Mode],
        b: GpuRef[Mode],
        epilogue: EpilogueVisitorTree | None,
        inputs: Mapping[str, GpuRef[Mode]],
    ) -> None:
        self._api = api
        self.epilogue = epilogue or EpilogueVisitorTree()
        unknown = sorted(set(inputs) - set(inputs_of(self.epilogue.nodes)))
        if unknown:
            raise TypeError(f"cutlass.plan: the epilogue has no {unknown[0]!r}; it has {_listed(self.epilogue)}")
        for name, one in {"b": b, **inputs}.items():
            _check_array("cutlass.plan", name, one)
        self._arrays = {
            name: api._submit(Empty(shape=one.shape, dtype=one.dtype.name)) for name, one in {"b": b, **inputs}.items()
        }
        self.refit(b=b, **inputs)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the bound arrays: ``"b"`` and those of the epilogue."""
        return tuple(self._arrays)

    def __call__(self, a: GpuRef[Mode], **settings: Any) -> GpuRef[Mode]:
        """``epilogue(alpha * a @ b + beta * c)`` with the bound arrays.

        Args:
            a: ``[m, k]``, or a batch.
            settings: Arguments of :meth:`Methods.gemm`, and the arrays of the tree that are not bound.
        """
        bound = self._arrays
        inputs = {name: array for name, array in bound.items() if name != "b"}
        twice = sorted(set(inputs) & set(settings))
        if twice:
            raise TypeError(f"cutlass plan: {twice[0]!r} is bound; plan.refit({twice[0]}=...) replaces it")
        return self._api.gemm(a, bound["b"], epilogue=self.epilogue, **inputs, **settings)

    def refit(self, **arrays: GpuRef[Mode]) -> Reply[None]:
        """Replace bound arrays, all of them between two calls: earlier calls see the old values, later ones the new.

        Args:
            arrays: New values by name (``b=``, ``bias=`` …), of the same dtypes and shapes.

        Raises:
            TypeError: The plan binds no array of this name.
            ShapeError: Another dtype or shape.
        """
        unknown = sorted(set(arrays) - set(self._arrays))
        if unknown or not arrays:
            raise TypeError(
                f"cutlass plan: it binds no {unknown[0] if unknown else 'array'}; it has {', '.join(self._arrays)}"
            )
        for name, new in arrays.items():
            _check_array("cutlass plan", name, new)
            own = self._arrays[name]
            if new.dtype is not own.dtype or new.shape != own.shape:
                raise ShapeError(f"cutlass plan: {name} is {new.layout!r}, expected {own.layout!r}")
            if not new.layout.contiguous:
                raise ShapeError(f"cutlass plan: {name} is {new.layout!r}; it must be row-major: pass dev.copy({name})")
        answer: Reply[None] = self._api.refit(list(arrays.values()), [self._arrays[name] for name in arrays])
        return answer


def _listed(tree: EpilogueVisitorTree) -> str:
    return ", ".join(inputs_of(tree.nodes)) or "no arrays"


def _bound(
    method: str, tree: EpilogueVisitorTree | None, given: Mapping[str, Any], reduced: bool = False
) -> dict[str, Any]:
    """The fields of a message that an epilogue and its arrays give."""
    if tree is None:
        tree = EpilogueVisitorTree()
    if not isinstance(tree, EpilogueVisitorTree):
        raise TypeError(f"cutlass.{method}: epilogue is {tree!r}; pass a cb.EpilogueVisitorTree")
    names = inputs_of(tree.nodes)
    for name in given:
        if name not in names:
            raise TypeError(f"cutlass.{method}: the epilogue has no {name!r}; it has {_listed(tree)}")
    for name in names:
        if name not in given:
            raise TypeError(f"cutlass.{method}: the epilogue reads {name!r}, which is missing; pass {name}=")
        _check_array(f"cutlass.{method}", name, given[name])
    if not reduced and reductions_of(tree.nodes):
        raise ShapeError(f"cutlass.{method}: the epilogue has reductions; dev.cutlass.gemm_reduced returns them, too")
    plain = tree.nodes == EpilogueVisitorTree().nodes
    return {"epilogue": () if plain else tree.nodes, "inputs": tuple(given[name] for name in names)}


def _check_array(method: str, name: str, value: Any) -> None:
    if not isinstance(value, Operand):
        raise TypeError(f"{method}: {name} is {type(value).__name__}; pass a GpuRef (dev.put(array) makes one)")


def _starts(offsets: Any, groups: int, rows: int) -> "np.ndarray[Any, Any]":
    """Offsets as they are sent, checked."""
    if offsets is None:
        if not groups or rows % groups:
            raise ShapeError(f"cutlass.grouped_gemm: {rows} rows in {groups} groups of equal size; pass offsets")
        return np.arange(groups + 1, dtype=np.int32) * np.int32(rows // groups)
    refuse_masked(offsets, "cutlass.grouped_gemm: offsets", "array.filled(value)")
    starts = np.asarray(offsets)
    if starts.shape != (groups + 1,) or starts.dtype.kind not in "iu":
        raise ShapeError(
            f"cutlass.grouped_gemm: offsets has shape {starts.shape} and dtype {starts.dtype}; expected {groups + 1} "
            "integers: the start of each group, and the end"
        )
    if starts[0] != 0 or starts[-1] != rows or (starts[1:] < starts[:-1]).any():
        raise ShapeError(
            f"cutlass.grouped_gemm: offsets is {starts.tolist()}; it must rise from 0 to {rows}, the rows of a"
        )
    return np.ascontiguousarray(starts, dtype=np.int32)


def _moves(kind: ConvKind, stride: Any, padding: Any, dilation: Any, extent: Any) -> dict[str, Any]:
    """The fields of a convolution beside its operands; one number stands for both axes."""
    given = {"stride": stride, "padding": padding, "dilation": dilation}
    pairs = {name: (value, value) if isinstance(value, int) else value for name, value in given.items()}
    return {"kind": kind, "extent": extent, **pairs}
