"""The parameters of a kernel: ``"in u: f32[h, w], out v: f32[h, w], alpha: f32, w: i32"``.

An array has a role (``in``, ``out``, ``inout``), a dtype and a shape; a number has a dtype. The names in shapes are
extents: the first array with a name defines it, later ones must agree, and the shape of an output may be a formula of
them. ``[...]`` is any shape, the same wherever it appears. A number that has the name of an extent, or a definition
(``n: i64 = h * w``), is not passed by the caller: it follows from the shapes. A dtype that is a capital letter,
optionally with digits, stands for any dtype, the same wherever it appears.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from callboard.core.dtype import DTYPES
from callboard.kernel.nvrtc.expressions import names_in, parsed

__all__ = ["ANY_SHAPE", "ROLES", "Declared", "Parameters", "parameters"]

ROLES = ("in", "out", "inout")
NUMBER = "number"
ANY_SHAPE = "..."

_ONE = re.compile(
    r"(?:(?P<role>\w+)\s+)?(?P<name>[A-Za-z_]\w*)\s*:\s*(?P<dtype>\w+)\s*(?:\[(?P<shape>[^\[\]]*)\])?"
    r"\s*(?:=\s*(?P<formula>.+))?",
    re.DOTALL,
)
_TYPE_NAME = re.compile(r"[A-Z]\d*")


class Declared(NamedTuple):
    """One parameter.

    Attributes:
        kind: ``"in"``, ``"out"``, ``"inout"``, or ``"number"``.
        name: Name of the parameter.
        dtype: Name of a dtype, or a name that stands for one.
        shape: A formula for each axis of an array; ``("...",)`` for any shape.
        formula: Formula of a number that follows from the shapes; ``""``: the caller passes it.
    """

    kind: str
    name: str
    dtype: str
    shape: tuple[str, ...] = ()
    formula: str = ""

    @property
    def is_array(self) -> bool:
        return self.kind != NUMBER

    @property
    def is_passed(self) -> bool:
        """True if callers pass it by position: all but outputs and numbers derived from shapes."""
        return self.kind != "out" and not self.formula


class Parameters(NamedTuple):
    """The parameters of a kernel, in the order in which the CUDA function takes them.

    Attributes:
        all: Every one.
        passed: Parameters that a caller passes, in order.
        outs: The outputs, in order.
        types: The names that stand for dtypes, in order of first use.
    """

    all: tuple[Declared, ...]
    passed: tuple[Declared, ...]
    outs: tuple[Declared, ...]
    types: tuple[str, ...]


@lru_cache(maxsize=512)
def parameters(text: str) -> Parameters:
    """The parameters that a text declares.

    Raises:
        ValueError: The text declares no parameter, or lacks one that shapes and numbers need; names the parameter.
    """
    found = tuple(_declared(part) for part in _parts(text))
    if not found:
        raise ValueError("a kernel needs a parameter; declare one, as in 'inout x: f32[n]'")
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} is declared twice")
    extents = _extents(found)
    known = tuple(
        one._replace(formula=one.name) if one.kind == NUMBER and not one.formula and one.name in extents else one
        for one in found
    )
    for one in known:
        for formula in (*one.shape, *([one.formula] if one.formula else [])):
            unknown = set() if formula == ANY_SHAPE else names_in(formula) - extents
            if unknown:
                raise ValueError(f"{one.name}: no array that is passed has an extent {min(unknown)}")
        if one.is_array and one.name in extents:
            raise ValueError(f"{one.name} is an array and an extent")
    any_shape = any(one.shape == (ANY_SHAPE,) for one in known if one.kind != "out" and one.is_array)
    for one in known:
        if one.kind == "out" and one.shape == (ANY_SHAPE,) and not any_shape:
            raise ValueError(f"{one.name}: no array that is passed has the shape [...]")
    types = tuple(dict.fromkeys(one.dtype for one in known if one.dtype not in DTYPES))
    bound = {one.dtype for one in known if one.is_array and one.kind != "out"}
    for name in types:
        if name not in bound:
            raise ValueError(f"no passed array determines the dtype {name}")
    passed = tuple(one for one in known if one.is_passed)
    return Parameters(known, passed, tuple(one for one in known if one.kind == "out"), types)


def _parts(text: str) -> list[str]:
    """The text at its commas, but those in brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _declared(part: str) -> Declared:
    found = _ONE.fullmatch(part)
    if found is None:
        raise ValueError(f"{part!r} declares no parameter; write 'in x: f32[n]' or 'alpha: f32'")
    role, name, dtype, shape, formula = found.group("role", "name", "dtype", "shape", "formula")
    if dtype not in DTYPES and not _TYPE_NAME.fullmatch(dtype):
        raise ValueError(f"{name}: no dtype {dtype!r}; use one of {', '.join(DTYPES)}, or a capital letter for any")
    if shape is None:
        if role is not None:
            raise ValueError(f"{name} has a role and no shape; write '{role} {name}: {dtype}[n]'")
        if formula:
            parsed(formula)
        return Declared(NUMBER, name, dtype, (), (formula or "").strip())
    if role not in ROLES:
        raise ValueError(f"{name}: an array needs a role, one of {', '.join(ROLES)}")
    if formula:
        raise ValueError(f"{name}: an array cannot be defined; give it a shape")
    axes = tuple(_parts(shape))
    if ANY_SHAPE in axes and len(axes) > 1:
        raise ValueError(f"{name}: [...] cannot be combined with other extents; name the extents instead")
    for axis in axes:
        if axis != ANY_SHAPE:
            parsed(axis)
    return Declared(role, name, dtype, axes)


def _extents(found: Iterable[Declared]) -> set[str]:
    """The extents determined by the passed arrays."""
    return {axis for one in found if one.is_array and one.kind != "out" for axis in one.shape if axis.isidentifier()}
