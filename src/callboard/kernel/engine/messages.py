"""The messages of ``dev.engine``: read a model, execute it, forget it."""

import math
from typing import ClassVar

import msgspec

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.core.layout import UNBOUNDED, BoundedExtent, layout_of
from callboard.core.op import Op, Outputs, StructOutputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.engine.actor import TrtActor

__all__ = ["Build", "EngineSpec", "Execute", "Release"]

MOST_TEXT = 64 << 20


class EngineSpec(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """What is executed of a model.

    Attributes:
        title: Name of the model in errors.
        digest: What names the model; the engine keeps one session for each.
        threads: Threads of an execution on a CPU; 0: as many as the engine likes.
        inputs: Names of the inputs, in the order of ``ins``.
        outputs: Names of the outputs.
        layouts: Dtype and shape of each output; -1 for an extent that the engine determines.
        budget: Seconds of an execution.
        steady: Its time, and all shapes in it, depend on the shapes of the inputs alone.
        token: Contexts in the process of the host find the session by it; ``""``: there are none.
        waits: On CUDA: it may take long on the host, which opens the session, looks for algorithms or waits for values
            of the device: it is done on the host's helper thread.
        tf32: On CUDA: convolutions and products in f32 may round their factors to TF32.
    """

    title: str
    digest: str
    threads: int = 0
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    layouts: tuple[tuple[str, tuple[int, ...]], ...] = ()
    budget: float = math.inf
    steady: bool = False
    token: str = ""
    waits: bool = False
    tf32: bool = False


class Build(Op[TrtActor, GpuRef], tag="engine.build"):
    """Read and optimise a model; answers its inputs, outputs and the engine's version as JSON.

    Args:
        model: u8[n]: the ONNX file.
        spec: The model's digest and limits.
        out: Left out: a new array of u8.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = (DTYPES["u8"],)

    model: In
    spec: EngineSpec
    out: Out | None = None

    def infer(self) -> Outputs:
        _check_model(self, self.model)
        if self.out is not None:
            raise ShapeError("engine.build: out is given, but only the engine determines its length: leave it out")
        return {"out": layout_of(DTYPES["u8"], (BoundedExtent(MOST_TEXT),))}


class Execute(Op[TrtActor, "tuple[GpuRef, ...]"], tag="engine.execute"):
    """Execute a model once; an execution context makes the message (``context(x=ref)``).

    Args:
        model: u8[n]: the ONNX file. It is read when the engine has no session of it.
        spec: What is executed.
        ins: The inputs, without gaps, in the order of ``spec.inputs``.
        outs: The outputs, without gaps; new arrays of ``spec.layouts`` when None.
    """

    returns = ("outs",)
    dtypes: ClassVar[tuple[DType, ...] | None] = (DTYPES["u8"],)

    model: In
    spec: EngineSpec
    ins: tuple[In, ...] = ()
    outs: tuple[Out, ...] | None = None

    @property
    def label(self) -> str:
        return f"engine.execute({self.spec.title})"

    def infer(self) -> StructOutputs:
        spec = self.spec
        _check_model(self, self.model)
        if len(self.ins) != len(spec.inputs):
            raise ShapeError(f"{self.label}: ins has {len(self.ins)} arrays; spec names {len(spec.inputs)}")
        for name, array in zip(spec.inputs, self.ins, strict=True):
            if not array.layout.contiguous:
                raise ShapeError(f"{self.label}: {name} is {array.layout!r}; it must have no gaps (dev.copy)")
        if not spec.layouts or len(spec.layouts) != len(spec.outputs):
            raise ShapeError(f"{self.label}: spec has {len(spec.layouts)} layouts for {len(spec.outputs)} outputs")
        if unknown := [name for name, _ in spec.layouts if name not in DTYPES]:
            raise ShapeError(f"{self.label}: {unknown[0]!r} is no dtype; use one of {', '.join(DTYPES)}")
        for out in self.outs or ():
            if not out.layout.contiguous:
                raise ShapeError(f"{self.label}: outs has {out.layout!r}; outputs must have no gaps")
        return {
            "outs": tuple(
                layout_of(DTYPES[dtype], tuple(BoundedExtent(UNBOUNDED) if n < 0 else n for n in shape))
                for dtype, shape in spec.layouts
            )
        }


class Release(Op[TrtActor, None], tag="engine.release"):
    """Close the engine's session of a model; does nothing if there is none. An execution opens it again.

    Args:
        spec: The model's digest and limits.
    """

    returns: ClassVar[tuple[str, ...]] = ()

    spec: EngineSpec

    def infer(self) -> Outputs:
        return {}


def _check_model(op: Op[TrtActor, object], model: In) -> None:
    if model.dtype is not DTYPES["u8"] or model.ndim != 1 or not model.layout.contiguous or not model.layout.size:
        raise ShapeError(f"{op.label}: model is {model.layout!r}, expected the bytes of an ONNX file, u8[n]")
