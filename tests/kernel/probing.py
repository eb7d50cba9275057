"""Dtypes accepted by an op, found by asking the message and the library with small operands."""

import contextlib
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
from tests.kernel import attention_probes, blas_probes, cutlass_probes, dnn_probes, engine_probes

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import AccelError
from callboard.core.layout import layout_of
from callboard.core.library import Library
from callboard.core.op import Op, info_of, outputs_of
from callboard.core.operand import Placeholder, Role, StructOperand, operands_of, parts_of
from callboard.core.opinfo import OpField
from callboard.kernel.collective import Part, Step
from callboard.kernel.fft.transform import HALF
from callboard.kernel.ipc import IpcMemHandle
from callboard.kernel.nvrtc import Geometry, LaunchSpec, Source
from callboard.kernel.nvrtc.bodies import packed
from callboard.kernel.sparse_lt.structured import FACTORS, StructuredRef, compressed_bytes

__all__ = ["accepted", "accepts", "dtype_of", "messages_of"]

PROBES = {
    **attention_probes.PROBES,
    **blas_probes.PROBES,
    **cutlass_probes.PROBES,
    **dnn_probes.PROBES,
    **engine_probes.PROBES,
}

EXTENT = 32
"""Tensor cores take multiples of it, also in structured matrices."""
PARTS = ((EXTENT,), (EXTENT + 1,), (EXTENT, EXTENT), (EXTENT, 1, 1))
"""What the operands of a struct operand may be: entries, pointers, padded blocks, blocks."""
PAIRS = ((EXTENT, 2), (EXTENT + 1, 2))
"""Complex halves: a power of two of them, and the kept half of a real transform of so many points."""
RESULTS = {"i8": "i32", "f32": "c64", "f64": "c128"}
"""What an op may make of a dtype: sums of integers, transforms of real numbers."""
KINDS = {"f32": "R2C", "f64": "D2Z", "c64": "C2C", "c128": "Z2Z"}
"""A transform of each dtype that has one; of halves, in pairs, the complex one."""
HANDLE = IpcMemHandle(
    device="", generation=0, pid=0, started=0, handle=b"", lease="", nbytes=4, offset=0, dtype="f32", shape=(1,)
)
MOST_AXES = 3
FP8 = ("f8_e4m3", "f8_e5m2")
"""Products take them mixed."""
INDICES = ("pivots", "indices", "offsets", "lengths")
"""Operands that are integers beside arrays of any dtype."""


def accepted(op: type[Op[Any, Any]], library: type[Library]) -> list[DType]:
    """The dtypes that the first operand may have, in the order of the table."""
    return [dtype for dtype in DTYPES.values() if accepts(op, library, dtype)]


def accepts(op: type[Op[Any, Any]], library: type[Library], dtype: DType) -> bool:
    """Whether the first operand may have this dtype."""
    return any(_takes(library, message) for message in messages_of(op, dtype))


def dtype_of(op: Op[Any, Any]) -> DType | None:
    """The dtype of a message's first operand, as :func:`accepted` counts it; None where it has none."""
    for field in info_of(type(op)).dynamic:
        value = getattr(op, field.name)
        if field.optional or field.role is Role.SCALAR or (field.many and not value):
            continue
        first = value[0] if field.many else value
        if isinstance(first, StructuredRef):
            return DTYPES[first.dtype]
        if isinstance(first, StructOperand):
            first = next(iter(operands_of(first).values()))
        return first.layout.dtype  # type: ignore[no-any-return]
    return None


def _takes(library: type[Library], message: Op[Any, Any]) -> bool:
    try:
        outputs_of(message)
        return library.why_not(message) is None
    except (AccelError, TypeError):
        return False


KERNEL = 'extern "C" __global__ void f() {}'
"""What a kernel does on a GPU: nothing, too."""


def nothing(*arguments: Any) -> None:
    """What a kernel does on a CPU."""


def messages_of(op: type[Op[Any, Any]], dtype: DType) -> Iterator[Op[Any, Any]]:
    """Messages with every required operand of every number of axes, written ones also of the result's dtype."""
    info = info_of(op)
    if info.tag in PROBES:
        with contextlib.suppress(AccelError, TypeError):
            yield op(**PROBES[info.tag](dtype))
        return
    required = [f for f in info.dynamic if not f.optional and _is_required(op, f.name)]
    settings = {n: _setting(n, dtype) for n in info.statics if n != "expression" and _is_required(op, n)}
    if "load" in info.statics:  # a transform around functions of the user's needs one, and to be told what it is
        settings |= {"load": "source", "kind": "R2C" if dtype.name in ("f32", "f64") else "C2C"}
    if "expression" in info.statics:
        settings["expression"] = "any(x)" if "axes" in info.statics else "x"
    settings |= _operators(info.statics, dtype)
    if "body" in info.statics:  # what a CPU runs
        settings["body"] = packed(nothing)
    choices = [_values(field, dtype, field is required[0]) for field in required]
    for values in itertools.product(*choices):
        fields = dict(zip((f.name for f in required), values, strict=True))
        try:
            yield op(**settings, **fields)
        except (AccelError, TypeError):
            continue


def _values(field: OpField, dtype: DType, is_first: bool) -> list[Any]:
    if field.role is Role.SCALAR:
        return [1.0 if float in field.takes else 1]
    if field.structs:
        return [value for cls in field.structs for value in _structs(cls, dtype)]
    dtypes = [dtype]
    if field.role in (Role.OUT, Role.INOUT) and dtype.name in RESULTS and not is_first:
        dtypes.append(DTYPES[RESULTS[dtype.name]])
    if field.role is Role.IN and field.name == "weights":
        dtypes = [DTYPES["f32"]]  # of a choice, whose result is an integer
    if field.role is Role.IN and field.name in INDICES:
        dtypes = [DTYPES["i32"]]
    if field.role is Role.IN and field.name == "flags":
        dtypes = [DTYPES["u8"]]
    shapes = [(EXTENT,) * axes for axes in range(MOST_AXES + 1)]
    if field.role is Role.INOUT:
        shapes.append((EXTENT * (EXTENT + 1) // 2,))  # a packed triangle
    if dtype is HALF:
        shapes += PAIRS
    found = [Placeholder(layout_of(d, shape)) for d in dtypes for shape in shapes]
    if (dtype.itemsize == 1 or dtype.name == "f32") and field.role is Role.IN and not is_first:
        # On GPUs products of single bytes, and of f32 as TF32, may want the second factor column-major.
        partners = FP8 if dtype.name in FP8 else (dtype.name,)
        found += [Placeholder(layout_of(DTYPES[d], (EXTENT, EXTENT), (1, EXTENT))) for d in partners]
    return [(value,) for value in found] if field.many else list(found)


def _structs(cls: type[StructOperand], dtype: DType) -> Iterator[StructOperand]:
    """Struct operands whose first operand has the dtype, and the others i32: of small extents, in blocks of 1."""
    if cls is StructuredRef:  # bytes that say themselves what they are
        if dtype in FACTORS:
            shape = (EXTENT, EXTENT)
            data = Placeholder(layout_of(DTYPES["u8"], (compressed_bytes(dtype, shape),)))
            yield StructuredRef(data, dtype.name, shape)  # type: ignore[arg-type]
        return
    parts = parts_of(cls)
    settings = {"shape": (EXTENT, EXTENT), "block": 1, "padded": True}
    names = [name for name, _ in parts.operands]
    for shapes in itertools.product(PARTS, repeat=len(names)):
        dtypes = [dtype, *[DTYPES["i32"]] * (len(names) - 1)]
        operands = [Placeholder(layout_of(d, shape)) for d, shape in zip(dtypes, shapes, strict=True)]
        yield cls(**dict(zip(names, operands, strict=True)), **{name: settings[name] for name in parts.settings})


def _operators(statics: tuple[str, ...], dtype: DType) -> dict[str, Any]:
    """Where an op has operators: one that the dtype has, or one of the caller's where it has no other."""
    if "cuda" not in statics:
        return {}
    if "operation" in statics:
        return {"operation": "max"} if dtype.kind == "bool" else {}
    if "comparison" in statics:
        return {"comparison": "custom", "cuda": "return a > 0 && a < 3;", "python": "(a > 0) & (a < 3)"}
    return {"cuda": "return a < b;", "python": "a < b"}


@functools.cache
def _is_required(op: type[Op[Any, Any]], name: str) -> bool:
    field = next(f for f in msgspec.structs.fields(op) if f.name == name)
    return field.required


def _setting(name: str, dtype: DType) -> Any:
    kind = KINDS.get(dtype.name, "C2C")
    values = {"dtype": dtype.name, "shape": (EXTENT,), "kind": kind, "dims": (EXTENT,), "low": 0.0, "high": 1.0}
    values |= {"length": EXTENT, "k": 1, "bins": 2, "images": (), "keep": ("out",)}
    values |= {"name": "f", "source": Source(KERNEL), "spec": LaunchSpec("f", (), Geometry((1, 1, 1), (1, 1, 1)))}
    values |= {"rank": 0, "size": 1, "offers": (b"",), "part": Part(0, 1, (Step("barrier"),))}
    values |= {
        "handle": HANDLE.as_bytes().hex(),
        "format": "csr",
        "equation": "ij->ji",
        **dict.fromkeys(("modes_a", "modes_b", "modes_out"), "ij"),
    }
    return values[name]
