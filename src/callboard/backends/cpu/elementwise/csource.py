"""Programs as C, where the machine's arithmetic gives the bits that NumPy gives.

These are the functions that IEEE 754 defines to the last bit, of f32, f64 and bool, and comparisons of integers; and
`erf` of f32, which both compute by sums and products (:mod:`.erf`). A compiler may not contract a product and a sum
(``-ffp-contract=off``), nor assume anything about NaN. Whatever a library approximates (``exp``), and whatever NumPy
leaves to its loops (the sign of ``maximum(0, -0)``), stays NumPy's. Which of two NaNs a sum or a product takes is left
to the loops, too: NumPy's take either, by the place of the element.

Compilers change the sign of a NaN (``-a + b`` becomes ``b - a``, ``a * -1`` becomes ``-a``). So negation and ``abs``
act on the sign's bit, which comes, as do the constants 1, -1 and 0, from memory that the compiler may not look into.
"""

import math
from collections.abc import Mapping, Sequence

from callboard.backends.cpu.elementwise.erf import C_TEXT
from callboard.core.dtype import DType
from callboard.kernel.elementwise.program import Program, Step

__all__ = ["c_source"]

WHOLE: Mapping[str, str] = {
    f"{name[0]}{bits}": f"{name}{bits}_t" for name in ("int", "uint") for bits in (8, 16, 32, 64)
}
TYPES: Mapping[str, str] = {"f32": "float", "f64": "double", "bool": "uint8_t", **WHOLE}
COMPARISONS: Mapping[str, str] = {
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
}
FLOATING: Mapping[str, str] = {
    "add": "{0} + {1}",
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "divide": "{0} / {1}",
    "negative": "negative_{type}({0}, sign_{type})",
    "abs": "abs_{type}({0}, sign_{type})",
    "sqrt": "sqrt_{type}({0})",
    "positive": "{0}",
    "square": "{0} * {0}",
    "isnan": "{0} != {0}",
    **COMPARISONS,
}
"""Functions of floating-point arguments."""
TRUTHS: Mapping[str, str] = {
    "logical_and": "({0} != 0) & ({1} != 0)",
    "logical_or": "({0} | {1}) != 0",
    "logical_xor": "({0} != 0) ^ ({1} != 0)",
    "logical_not": "{0} == 0",
    "bitwise_and": "({0} != 0) & ({1} != 0)",
    "bitwise_or": "({0} | {1}) != 0",
    "bitwise_xor": "({0} != 0) ^ ({1} != 0)",
    "bitwise_invert": "{0} == 0",
    "equal": "({0} != 0) == ({1} != 0)",
    "not_equal": "({0} != 0) != ({1} != 0)",
}
"""Functions of bools: bytes, of which each but 0 is true."""

FLOATS = """\
#include <math.h>
#include <stdint.h>
#include <string.h>
#define FLOAT(name, type, word, root) \\
static inline type negative_##name(type x, word sign) \\
{ word bits; memcpy(&bits, &x, sizeof x); bits ^= sign; memcpy(&x, &bits, sizeof x); return x; } \\
static inline type abs_##name(type x, word sign) \\
{ word bits; memcpy(&bits, &x, sizeof x); bits &= ~sign; memcpy(&x, &bits, sizeof x); return x; } \\
static inline type sqrt_##name(type x) { return root(x); }
FLOAT(f32, float, uint32_t, sqrtf)
FLOAT(f64, double, uint64_t, sqrt)
static volatile const uint32_t minus_f32 = UINT32_C(1) << 31;
static volatile const uint64_t minus_f64 = UINT64_C(1) << 63;
"""
"""Before the function."""
SIGNS = ("const uint32_t sign_f32 = minus_f32;", "const uint64_t sign_f64 = minus_f64;")


def c_source(program: Program, steps: Sequence[Sequence[int]], erf: bool = False) -> str | None:
    """A function that computes a program, or None where not all of it has exact results.

    Its arguments are the addresses of the operands and the results; the extents of the axes, and behind them for each
    array its steps along them; and the numbers.

    Args:
        program: The computation.
        steps: For each operand and each result its steps along the axes, in elements. Of those along the last axis
            the text says whether they are 1 or 0; no other number is in it.
        erf: NumPy computes ``erf`` of f32 by :mod:`.erf`.
    """
    dtypes = [step.dtype for step in program.steps if step.function == "operand"]
    dtypes += [program.steps[at].dtype for at in program.results]
    if any(step.dtype.name not in TYPES for step in program.steps) or not steps[0]:
        return None
    if not erf and any(step.function == "erf" for step in program.steps):
        return None
    if any(program.steps[at].dtype.name in WHOLE for at in program.numbers):
        return None  # numbers come as doubles
    numbers = {at: i for i, at in enumerate(program.numbers)}
    lines: list[str] = []
    before = [*SIGNS, *(f"const {TYPES[program.steps[at].dtype.name]} s{at} = num[{i}];" for at, i in numbers.items())]
    arrays: dict[int, DType] = {}
    for at, step in enumerate(program.steps):
        if at in numbers:
            continue
        if step.function == "operand":
            arrays[step.value] = step.dtype
            text: str | None = f"p{step.value}[{_place(step.value, steps)}]"
        else:
            text = _value(step, program)
        if text is None:
            return None
        if step.function == "constant" and step.value in (-1, 0, 1):
            before.append(f"volatile const {TYPES[step.dtype.name]} hidden{at} = {text};")
            before.append(f"const {TYPES[step.dtype.name]} s{at} = hidden{at};")
            continue
        lines.append(f"const {TYPES[step.dtype.name]} s{at} = {text};")
    first = len(steps) - len(program.results)
    for i, at in enumerate(program.results):
        arrays[first + i] = program.steps[at].dtype
        lines.append(f"p{first + i}[{_place(first + i, steps)}] = s{at};")
    return _looped(len(steps[0]), len(steps), {i: TYPES[dtype.name] for i, dtype in arrays.items()}, before, lines)


def _place(array: int, steps: Sequence[Sequence[int]]) -> str:
    last = steps[array][-1]
    return "k" if last == 1 else "0" if last == 0 else f"k * d{array}"


def _value(step: Step, program: Program) -> str | None:
    """The text of a step; None if it is not exact."""
    if step.function == "constant":
        return _constant(step)
    types = [program.steps[at].dtype.name for at in step.arguments]
    names = [f"s{at}" for at in step.arguments]
    if step.function == "cast":
        if step.dtype.name in WHOLE and types[0] not in ("bool", *WHOLE):
            return None  # C leaves open what a number beyond the integers becomes
        if types[0] == "bool":
            return names[0] if step.dtype.name == "bool" else f"{names[0]} != 0"
        return f"{names[0]} != 0" if step.dtype.name == "bool" else names[0]
    if step.function == "where":
        return "{} ? {} : {}".format(*names)
    if step.function == "erf":
        return f"erf_f32({names[0]}, sign_f32)" if types == ["f32"] else None
    if len(set(types)) != 1:
        return None
    known = TRUTHS if types[0] == "bool" else COMPARISONS if types[0] in WHOLE else FLOATING
    text = known.get(step.function)
    return None if text is None else text.format(*names, type=types[0])


def _constant(step: Step) -> str | None:
    if step.dtype.name == "bool":
        return str(int(step.value))
    if step.dtype.name in WHOLE:
        return None
    value = float(step.dtype.np.type(step.value))
    return value.hex() if math.isfinite(value) else None


def _looped(axes: int, arrays: int, types: Mapping[int, str], before: list[str], inside: list[str]) -> str:
    """Loops over all axes around these lines."""
    text = [FLOATS, C_TEXT, "void run(const int64_t *at, const int64_t *of, const double *num) {", *before]
    outer = range(axes - 1)
    text += [f"for (int64_t i{axis} = 0; i{axis} < of[{axis}]; i{axis}++) {{" for axis in outer]
    for array in range(arrays):
        steps = axes * (1 + array)
        moved = "".join(f" + i{axis} * of[{steps + axis}]" for axis in outer)
        text.append(f"{types[array]} *p{array} = ({types[array]} *)at[{array}]{moved};")
        text.append(f"const int64_t d{array} = of[{steps + axes - 1}];")
    text += ["#pragma GCC ivdep", f"for (int64_t k = 0; k < of[{axes - 1}]; k++) {{", *inside, "}"]
    return "\n".join([*text, *["}"] * len(outer), "}", ""])
