"""``Fused``: the base of the products with an epilogue, and their common checks."""

from typing import Any, ClassVar, Literal, TypeVar

from callboard.core.dtype import DTYPES, DType, DTypeLike, as_dtype, dtypes_of
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, layout_of
from callboard.core.op import Op
from callboard.core.operand import ByValue, In, Operand, Out
from callboard.kernel.checks import refuse
from callboard.kernel.cutlass.actor import CutlassActor
from callboard.kernel.cutlass.epilogue import INPUTS, EpilogueNode, check_nodes, shown

__all__ = ["ACCUMULATED", "RESULTS", "Engine", "Fused", "Problem", "inputs_of", "reductions_of"]

R_co = TypeVar("R_co", covariant=True)

Engine = Literal["auto", "vendor", "cutlass"]
"""``"auto"``: the faster of the vendor's routine and CUTLASS, where binaries of it are in the cache. ``"cutlass"``: the
latter alone, compiled if need be."""

ACCUMULATED = {"f64": "f64", "i8": "i32"}
"""The dtype of the sums, f32 for all others."""
RESULTS = ("f16", "bf16", "f32", "f64", "i8", "i32", "f8_e4m3", "f8_e5m2")
"""Dtypes of results."""
DEFAULTS = {"i8": "i32", "f8_e4m3": "bf16", "f8_e5m2": "bf16"}
VALUES = dtypes_of("f16 bf16 f32 f64")
"""Dtypes of the arrays of an epilogue."""


class Problem:
    """The result of a product as rows and columns.

    Attributes:
        result: Layout of the result; all its axes but the last one are rows.
        stacks: Number of matrices (or groups) that may each have a row of their own of a number for each column; 0 if
            it is one matrix.
        by_group: The matrices are groups of rows of one matrix.
    """

    __slots__ = ("by_group", "result", "stacks")

    def __init__(self, result: Layout, stacks: int = 0, by_group: bool = False) -> None:
        self.result = result
        self.stacks = stacks
        self.by_group = by_group


class Fused(Op[CutlassActor, R_co]):
    """Base of the messages; not sent itself. ``Gemm`` explains the fields."""

    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "c")})
    dtypes: ClassVar[tuple[DType, ...]] = dtypes_of("f16 bf16 f32 f64 i8 f8_e4m3 f8_e5m2")

    a: In
    b: In
    out: Out | None = None
    c: In | None = None
    inputs: tuple[In, ...] = ()
    reductions: tuple[Out, ...] = ()
    alpha: ByValue = 1.0
    beta: ByValue = 0.0
    epilogue: tuple[EpilogueNode, ...] = ()
    out_dtype: DTypeLike | None = None
    accum: DTypeLike | None = None
    engine: Engine = "auto"

    @property
    def accumulated(self) -> DType:
        """The dtype of the sums."""
        return DTYPES[ACCUMULATED.get(self.a.dtype.name, "f32")]

    @property
    def computed(self) -> DType:
        """The dtype in which the epilogue computes."""
        return DTYPES["f64" if self.a.dtype.name == "f64" else "f32"]

    @property
    def result_dtype(self) -> DType:
        """The dtype of the result: named, or of a given ``out``, or of ``quantize`` at the top, or by the factors."""
        if self.out_dtype is not None:
            return as_dtype(self.out_dtype)
        if self.out is not None:
            return self.out.dtype
        top = self.epilogue[-1:]
        while top and top[0].kind == "reduce":
            top = (self.epilogue[top[0].arguments[0]],)
        if top and top[0].kind == "quantize":
            return DTYPES[top[0].name]
        if self.a.dtype.name == "i8" and self.epilogue:
            return DTYPES["f32"]
        return DTYPES[DEFAULTS.get(self.a.dtype.name, self.a.dtype.name)]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs, in the order of ``inputs``: as they first appear in the epilogue."""
        return inputs_of(self.epilogue)

    def problem(self) -> Problem:
        """The shapes, from ``a`` and ``b``."""
        raise NotImplementedError

    def infer(self) -> Any:
        problem = self.problem()
        self.check_factors()
        self._check_epilogue(problem)
        return {"out": problem.result}

    def check_factors(self) -> None:
        """Dtypes of both factors, of the sums and of the result."""
        a, b = self.a.dtype, self.b.dtype
        if a not in self.dtypes:
            raise refuse(
                self, f"a is {self.a.layout!r}; its dtype must be one of {', '.join(d.name for d in self.dtypes)}"
            )
        if b is not a and not {a.name, b.name} <= {"f8_e4m3", "f8_e5m2"}:
            raise refuse(
                self, f"b is {self.b.layout!r} and a is {self.a.layout!r}: both must have one dtype (x.astype converts)"
            )
        if self.result_dtype.name not in RESULTS:
            raise refuse(self, f"out would be {self.result_dtype}; its dtype must be one of {', '.join(RESULTS)}")
        if self.accum is not None and as_dtype(self.accum) is not self.accumulated:
            raise refuse(self, f"accum is {as_dtype(self.accum)}; products of {a} are summed in {self.accumulated}")

    def _check_epilogue(self, problem: Problem) -> None:
        result = problem.result
        if self.c is None and self.beta != 0:
            raise refuse(self, f"beta is {self.beta} and c is None; pass c=, or leave beta out")
        if self.c is not None and (self.c.shape != result.shape or self.c.dtype not in (*VALUES, result.dtype)):
            raise refuse(self, f"c is {self.c.layout!r}, expected {result!r} (or f16, bf16, f32, f64 of this shape)")
        nodes = self.epilogue
        if nodes:
            try:
                check_nodes(nodes)
            except ShapeError as e:
                raise refuse(self, str(e)) from None
            if all(node.kind != "accumulator" for node in nodes):
                raise refuse(self, "epilogue: no node reads the accumulator; EpilogueVisitorTree() is the product")
        names = self.names
        if len(names) != len(self.inputs):
            raise refuse(self, f"{len(self.inputs)} inputs for the epilogue's {', '.join(names) or 'none'}")
        given = dict(zip(names, self.inputs, strict=True))
        for at, node in enumerate(nodes):
            if node.kind in INPUTS:
                self._check_input(problem, at, given[node.name])
        reduced = reductions_of(nodes)
        if len(reduced) != len(self.reductions):
            raise refuse(
                self,
                f"{len(self.reductions)} reductions for the epilogue's {', '.join(n.name for n in reduced) or 'none'}",
            )
        for node, target in zip(reduced, self.reductions, strict=True):
            wanted = self.reduced(problem, node)
            if target.dtype is not wanted.dtype or target.shape != wanted.shape:
                raise refuse(self, f"reduction {node.name!r} is {target.layout!r}, expected {wanted!r}")

    def _check_input(self, problem: Problem, at: int, operand: Operand) -> None:
        node, shape = self.epilogue[at], problem.result.shape
        n = shape[-1]
        shapes: Any = {
            "matrix": [shape],
            "row": [shape[:-1]],
            "column": [(n,), (problem.stacks, n)] if problem.stacks else [(n,)],
            "tensor": [()],
        }[node.kind]
        if operand.shape not in shapes or operand.dtype not in VALUES:
            wanted = " or ".join(str(list(one)) for one in shapes)
            allowed = ", ".join(d.name for d in VALUES)
            raise refuse(
                self, f"epilogue, node {shown(self.epilogue, at)}: {operand.layout!r}, expected {wanted} of {allowed}"
            )

    def reduced(self, problem: Problem, node: EpilogueNode) -> Layout:
        """The layout of a reduction."""
        shape = problem.result.shape
        if node.how.endswith("row"):
            return layout_of(self.computed, shape[:-1])
        if problem.by_group:
            raise refuse(self, f"reduction {node.name!r} is for each column; in groups there are those for each row")
        return layout_of(self.computed, (problem.stacks, shape[-1]) if problem.stacks else shape[-1:])


def inputs_of(nodes: tuple[EpilogueNode, ...]) -> tuple[str, ...]:
    """Names of the arrays of an epilogue, in the order in which they first appear."""
    return tuple(dict.fromkeys(node.name for node in nodes if node.kind in INPUTS))


def reductions_of(nodes: tuple[EpilogueNode, ...]) -> list[EpilogueNode]:
    """The nodes with an additional result, in order."""
    return [node for node in nodes if node.kind == "reduce"]
