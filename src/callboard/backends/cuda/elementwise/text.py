"""The steps of a program as CUDA C++: types, literals, calls of the functions in ``data/expressions*.cuh``."""

import math
from collections.abc import Iterator
from typing import Any

from callboard.core.dtype import DType
from callboard.kernel.elementwise.program import Program, Step

__all__ = ["HELD", "STORED", "element_text", "headers", "loaded", "stored"]

STORED = {
    "bool": "u8", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64",
    "u8": "u8", "u16": "u16", "u32": "u32", "u64": "u64",
    "f16": "Half", "bf16": "Brain", "f32": "float", "f64": "double",
    "c64": "Complex<float>", "c128": "Complex<double>",
}  # fmt: skip
"""The type of an element in memory."""
HELD = STORED | {"bool": "bool", "f16": "float", "bf16": "float"}
"""The type of a value between steps."""

INLINE = 64
"""Steps up to which they are written out for each element of a pack; more take the compiler too long."""

_BY_DTYPE = {"nextafter": ("f16", "bf16")}
"""Functions that depend on the dtype, not only on the type that holds it."""


def headers(program: Program) -> tuple[str, ...]:
    """The files of ``data/`` that the text of a program needs."""
    if any(step.dtype.is_complex for step in program.steps):
        return ("expressions.cuh", "expressions_complex.cuh")
    return ("expressions.cuh",)


def loaded(dtype: DType, value: str) -> str:
    """An element in memory as it is held."""
    if dtype.name in ("f16", "bf16"):
        return f"widen<float>({value})"
    return f"({value} != 0)" if dtype.kind == "bool" else value


def stored(dtype: DType, value: str) -> str:
    """A held value as an element in memory."""
    if dtype.name in ("f16", "bf16"):
        return f"narrow<{STORED[dtype.name]}>({value})"
    return f"(u8){value}" if dtype.kind == "bool" else value


def element_text(program: Program, name: str = "element", numbers: str = "n") -> str:
    """A function that computes the results of one element, as they are held, from its operands and numbers.

    Args:
        program: The computation.
        name: Name of the function.
        numbers: Prefix of the fields of ``p`` that hold the numbers; their position follows it.
    """
    operands = sorted((s.value, s.dtype) for s in program.steps if s.function == "operand")
    given = [f"const {HELD[dtype.name]} x{at}" for at, dtype in operands]
    outs = [f"{HELD[program.steps[at].dtype.name]}& y{i}" for i, at in enumerate(program.results)]
    inline = "__forceinline__" if len(program.steps) <= INLINE else "__noinline__"
    lines = [f"__device__ {inline} void {name}({', '.join(['const Args& p', *given, *outs])}) {{"]
    lines += _statements(program, numbers)
    lines += [f"    y{i} = v{at};" for i, at in enumerate(program.results)]
    return "\n".join([*lines, "}"])


def _statements(program: Program, numbers: str) -> Iterator[str]:
    for at, step in enumerate(program.steps):
        yield f"    const {HELD[step.dtype.name]} v{at} = {_value(program, at, step, numbers)};"


def _value(program: Program, at: int, step: Step, numbers: str) -> str:
    if step.function == "operand":
        return f"x{step.value}"
    if step.function == "number":
        return f"p.{numbers}{program.numbers.index(at)}" + (" != 0" if step.dtype.kind == "bool" else "")
    if step.function == "constant":
        return literal(step.value, step.dtype)
    arguments = [f"v{argument}" for argument in step.arguments]
    if step.function == "cast":
        return _cast(program.steps[step.arguments[0]].dtype, step.dtype, arguments[0])
    suffix = f"_{step.dtype.name}" if step.dtype.name in _BY_DTYPE.get(step.function, ()) else ""
    return f"f_{step.function}{suffix}({', '.join(arguments)})"


def _cast(old: DType, dtype: DType, value: str) -> str:
    if dtype.kind == "bool":
        return f"converted<bool>({value})" if old.is_complex else f"{value} != 0"
    if dtype.name in ("f16", "bf16"):
        return f"as_{dtype.name}({value})"
    if dtype.is_complex and not old.is_complex:
        return f"as_complex<{HELD[dtype.name]}>({value})"
    return f"converted<{HELD[dtype.name]}>({value})"


def literal(value: Any, dtype: DType) -> str:
    """A constant, rounded to its dtype, as it is held."""
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.is_integer:
        return _whole(int(value), HELD[dtype.name])
    exact = dtype.np.type(value)
    if dtype.is_complex:
        suffix = "f" if dtype.name == "c64" else ""
        return f"{HELD[dtype.name]}{{{_real(float(exact.real), suffix)}, {_real(float(exact.imag), suffix)}}}"
    return _real(float(exact), "" if dtype.name == "f64" else "f")


def _whole(value: int, kind: str) -> str:
    if value >= 1 << 63:
        return f"({kind}){value}ULL"
    return f"({kind})({value + 1}LL - 1)" if value == -(1 << 63) else f"({kind}){value}LL"


def _real(value: float, suffix: str) -> str:
    if math.isfinite(value):
        return f"{value.hex()}{suffix}"
    bits = 0x7F800000 if math.isinf(value) else 0x7FC00000
    bits |= (1 << 31) * (math.copysign(1, value) < 0)
    single = f"__uint_as_float({bits:#x}u)"
    return single if suffix else f"(double){single}"
