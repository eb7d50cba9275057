"""Messages that differ in one field, made from their declarations, and what a backend answers to each."""

import itertools
import types
import typing
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from tests.kernel.computed import templates_of, with_arrays

from callboard.core.dtype import DTYPES
from callboard.core.errors import AccelError
from callboard.core.layout import Layout, OpenLayout, layout_of
from callboard.core.library import AnyOp, Library
from callboard.core.op import info_of, outputs_of
from callboard.core.operand import Operand, Placeholder, Role
from callboard.testing.session import LibrarySession, SessionArray

__all__ = ["Answer", "answer", "contexts", "equal", "fields_of", "templates", "values_of"]

FAMILIES = ("f32 i32 i8", "c64", "f8_e4m3")
"""A message is made of the first dtype of each that it takes."""
MOST = 1 << 15
"""Elements of an operand or result."""
FEW = 4
"""Values of a field that are tried."""
VALUES: Mapping[str, tuple[Any, ...]] = {
    "axes": ((0,), (1,), (0, 1), (-1,)),
    "rng.kind": ("philox64", "sobol32", "xorwow"),
    "expression": ("x + x", "max(x)", "out = x * 2"),
    "softmax_scale": (0.25, 0.5),
    "parameter": ({"kind": "elu", "parameter": 0.5},),
    "solver.syevdx_range.low": ({"low": 20.0, "high": 60.0},),
    "solver.syevdx_range.high": ({"low": 20.0, "high": 40.0},),
    "dnn.embedding_backward.rows": (40,),
    "dnn.top_k.axis": ({"axis": 0},),
    "elementwise.map.numbers": ({"expression": "x * a", "numbers": ("a",), "scalars": (0.5,)},),
    "elementwise.map.scalars": ((2.0,), (3.0,)),
    "elementwise.map_many.numbers": ({"expression": "out = x * a", "numbers": ("a",), "scalars": (0.5,)},),
    "elementwise.map_many.scalars": ((2.0,), (3.0,)),
    "elementwise.map_many.keep": ({"expression": "out = x * 2; other = x - 1", "keep": ("other", "out")},),
    "elementwise.reduce.numbers": ({"expression": "sum(x * a)", "numbers": ("a",), "scalars": (0.5,)},),
    "elementwise.reduce.scalars": ((2.0,), (3.0,)),
    "elementwise.reduce.dtype": ({"expression": "sum(x)", "dtype": "f64"}, {"expression": "sum(x)", "dtype": "i64"}),
    "cub.histogram_even.lower": (-1.0,),
    "fft.irfft.n": (63,),
    "fft.irfft_overwrite.n": (63,),
    "dims": ((16,), (8,)),
    "in_stride": ({"dims": (8,), "in_stride": 2, "in_dist": 16, "in_embed": (8,)},),
    "in_dist": ({"dims": (4,), "batch": 2, "in_stride": 1, "in_dist": 8, "in_embed": (8,)},),
    "out_stride": ({"dims": (8,), "out_stride": 2, "out_dist": 16, "out_embed": (8,)},),
    "out_dist": ({"dims": (4,), "batch": 2, "out_stride": 1, "out_dist": 8, "out_embed": (8,)},),
    "equation": ("ij->i", "ij->ij"),
    "in_embed": ({"dims": (2, 2), "batch": 2, "in_stride": 1, "in_dist": 12, "in_embed": (3, 4)},),
    "modes_a": ("ji", "jk"),
    "modes_b": ("ji", "jk"),
    "modes_out": ("ji",),
    "output_padding": (1,),
    "out_embed": ({"dims": (2, 2), "batch": 2, "out_stride": 1, "out_dist": 12, "out_embed": (3, 4)},),
    "padding": (1, ((0, 1), (1, 0)), 0),
    "shape": ((16,), (8, 2, 3, 3), (2, 4, 7, 7)),
    "shifts": (((1,),), ((1, 2),), ((3, 0, 1),)),
    "stride": (2, 1, (1, 2)),
    "dilation": (2, (1, 2)),
    "window": (3, (2, 3)),
    "window_size": ((1, 0), (0, 2)),
    "nodes": (),
    "outputs": (),
    "dtype": ("f64", "i64", "f16", "c128", "i16"),
    "compute": ("f64", "f32", "bf16", "f16", "tf32", "i8"),
    "cuda": tuple({"cuda": "return a < 1;", "python": "a < 1", name: "custom"} for name in ("operation", "comparison")),
    "python": tuple(
        {"cuda": "return a + b;", "python": "a + b", name: "custom"} for name in ("operation", "comparison")
    ),
}
"""Values of fields whose types say little, by name, or fields that go together."""


class Answer(NamedTuple):
    """What a backend makes of a message: arrays, or the name of an error; ``refusal`` if it takes no such message."""

    arrays: tuple[Any, ...] = ()
    error: str = ""
    refusal: str = ""


def templates(op: type[AnyOp], library: type[Library]) -> Iterator[AnyOp]:
    """Messages of placeholders: for each family the one with the fewest axes, and the one with the most."""
    for family in FAMILIES:
        found = [one for one in templates_of(op, library, family.split()) if _is_small(one)]
        yield from found if len(found) < 2 else (found[0], found[-1])


def fields_of(op: type[AnyOp]) -> list[str]:
    """Settings, numbers, and operands that may be left out."""
    info = info_of(op)
    return [*info.statics, *(f.name for f in info.dynamic if f.role is Role.SCALAR or _may_be_given(f))]


def _may_be_given(field: Any) -> bool:
    return field.optional and field.role in (Role.IN, Role.INOUT)


def contexts(message: AnyOp, library: type[Library]) -> list[AnyOp]:
    """The message; the same of matrices that are not square; and with as much as possible that is not a default."""
    whole = message
    for name in fields_of(type(message)):
        whole = next(values_of(whole, name, library), whole)
    return [message, *filter(None, [_tall(message, library)]), whole]


def _tall(message: AnyOp, library: type[Library]) -> AnyOp | None:
    """The message with matrices of half as many columns in place of square ones."""
    fields = {
        name: Placeholder(layout_of(value.dtype, (*value.shape[:-1], value.shape[-1] // 2)))
        for name, value in msgspec.structs.asdict(message).items()
        if isinstance(value, Placeholder) and value.ndim == 2 and value.shape[0] == value.shape[1]
    }
    return _changed(message, library, fields) if fields else None


def values_of(message: AnyOp, name: str, library: type[Library]) -> Iterator[AnyOp]:
    """Messages that differ from this one in a field, all of which are valid; some, where it has many values."""
    return itertools.islice(_values_of(message, name, library), FEW)


def _values_of(message: AnyOp, name: str, library: type[Library]) -> Iterator[AnyOp]:
    now, info = getattr(message, name), info_of(type(message))
    hint = next(f.type for f in msgspec.structs.fields(type(message)) if f.name == name)
    candidates: Iterable[Any] = (
        VALUES.get(f"{info.tag}.{name}")
        or VALUES.get(f"{info.library}.{name}")
        or VALUES.get(name)
        or _of_type(hint, now)
    )
    field = next((f for f in info.dynamic if f.name == name), None)
    if field is not None and field.role is Role.SCALAR:
        candidates = VALUES.get(f"{info.tag}.{name}") or ((1, 3, 7) if isinstance(now, int) else (0.5, 2.0, 0.25))
    elif field is not None:
        candidates = () if now is not None else _operands(message)
    for value in candidates:
        fields = value if isinstance(value, dict) else {name: value}
        changed = _changed(message, library, fields)
        if changed is not None and (isinstance(value, Operand) or changed != message):
            yield changed


def _of_type(hint: Any, now: Any) -> Iterator[Any]:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        for one in typing.get_args(hint):
            yield from _of_type(one, now)
    elif origin is Literal:
        yield from typing.get_args(hint)
    elif hint is bool:
        yield from (not now,) if isinstance(now, bool) else (True, False)
    elif hint is int:
        yield from (0, 1, 2, 3, -1, 4, 8, 16)
    elif hint in (float, complex):
        yield from (0.5, 0.25, 2.0)


def _operands(message: AnyOp) -> list[Placeholder]:
    """Arrays that might be beside those of a message: of their shapes and of their extents."""
    layouts = [x.layout for _, _, _, _, x in info_of(type(message)).leaves(message) if isinstance(x, Operand)]
    layouts += [x for x in outputs_of(message).values() if isinstance(x, Layout) and not isinstance(x, OpenLayout)]
    shapes = dict.fromkeys([x.shape for x in layouts] + [(n,) for x in layouts for n in x.shape] + [()])
    dtypes = dict.fromkeys([*(x.dtype.name for x in layouts), "f32", "i32", "i64"])
    return [Placeholder(layout_of(DTYPES[d], shape)) for d, shape in itertools.product(dtypes, shapes)]


def _changed(message: AnyOp, library: type[Library], fields: Mapping[str, Any]) -> AnyOp | None:
    try:
        changed = msgspec.structs.replace(message, **fields)
        outputs_of(changed)
    except (AccelError, TypeError, ValueError):
        return None
    return changed if library.why_not(changed) is None and _is_small(changed) else None


def _is_small(message: AnyOp) -> bool:
    layouts = [x.layout for _, _, _, _, x in info_of(type(message)).leaves(message) if isinstance(x, Operand)]
    layouts += [x for x in outputs_of(message).values() if isinstance(x, Layout) and not isinstance(x, OpenLayout)]
    return all(layout.size <= MOST for layout in layouts)


# -- answers -----------------------------------------------------------------------------------------------------------


def _numbers(name: str, layout: Layout) -> "np.ndarray[Any, Any]":
    """Drawn by the name; square matrices have a dominant diagonal, vectors are positive and ascend."""
    rng, shape, kind = np.random.default_rng(zlib.crc32(name.encode())), layout.shape, layout.dtype.kind
    if kind in ("int", "uint", "bool"):
        if layout.dtype.itemsize >= 4:  # indices: none twice
            rows = shape[-1] if name == "pivots" and shape else layout.size or 1
            return (np.arange(layout.size) % rows).reshape(shape).astype(layout.dtype.np)
        return rng.integers(0, 2, shape).astype(layout.dtype.np)
    found = rng.standard_normal(shape)
    if len(shape) < 2:
        found = np.sort(abs(found) + 0.5, axis=None).reshape(shape)
    if layout.dtype.is_complex:
        found = found + 1j * rng.standard_normal(shape)
    if len(shape) >= 2 and shape[-1] == shape[-2]:
        found = found + max(4, shape[-1]) * np.eye(shape[-1])
    return found.astype(layout.dtype.np)


def answer(session: LibrarySession, message: AnyOp) -> Answer:
    """What a backend makes of a message of placeholders: results, and operands that it writes."""
    refusal = session.why_not(message)
    if refusal is not None:
        return Answer(refusal=refusal)
    try:
        given = with_arrays(session, message, _numbers)
        reply = session.submit(given)
    except Exception as e:  # a kind of answer, too, which the other backend has to give as well
        return Answer(error=type(e).__name__)
    written = [x for _, _, _, role, x in info_of(type(given)).leaves(given) if role is Role.INOUT]
    parts = [reply] if isinstance(reply, SessionArray) or not isinstance(reply, tuple) else list(reply)
    arrays = [session.get(x) if isinstance(x, SessionArray) else np.asarray(x) for x in parts if x is not None]
    return Answer((*arrays, *(session.get(x) for x in written)))


def equal(one: Answer, other: Answer, sizes: bool = False) -> bool:
    """The same error, or arrays that agree to a share of their largest element.

    Args:
        one, other: Two answers.
        sizes: Signs and phases do not count: of eigenvectors.
    """
    if one.error or other.error:
        return one.error == other.error
    return len(one.arrays) == len(other.arrays) and all(
        _close(a, b, sizes) for a, b in zip(one.arrays, other.arrays, strict=True)
    )


def _close(a: Any, b: Any, sizes: bool) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = (v.astype(wide) for v in (a, b))
    x, y = (abs(x), abs(y)) if sizes else (x, y)
    share = {1: 0.1, 2: 1e-2}.get(a.dtype.itemsize, 1e-3)
    finite = abs(x[np.isfinite(x)])
    return np.allclose(x, y, rtol=share, atol=share * float(finite.max(initial=1e-2)), equal_nan=True)
