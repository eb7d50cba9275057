"""The functions of expressions by PyTorch, of held elements."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from callboard.backends.torch.conversion import parts
from callboard.backends.torch.elementwise.holding import ORDER, fitted, number, rounded
from callboard.backends.torch.vendor import Tensor, held_as, torch
from callboard.core.dtype import DType

__all__ = ["Compute", "function"]

Compute = Callable[..., Tensor]

NAMES: Mapping[str, str] = {
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "bitwise_invert": "bitwise_not",
}
"""PyTorch's names, where they are others."""
ORDERED = frozenset({"less", "less_equal", "greater", "greater_equal", "maximum", "minimum", "fmax", "fmin"})
WHOLE = frozenset({"floor", "ceil", "trunc", "round", "positive", "conj"})
"""Functions that leave integers and bools as they are."""


def function(name: str, arguments: Sequence[DType], dtype: DType) -> Compute:
    """A function of held elements of these dtypes; its result is held, too."""
    if name == "cast":
        return lambda x: rounded(x, arguments[0], dtype)
    first = arguments[0]
    whole = first.kind in ("int", "uint", "bool")
    if whole and name in WHOLE:
        return lambda x: x
    if len(set(arguments)) > 1 and all(d.is_integer for d in arguments) and dtype.kind == "bool":
        return _compared(name, arguments)
    if first.name == "u64" and name in ORDERED:
        return _unsigned_order(getattr(torch, NAMES.get(name, name)), dtype)
    if first.name == "u64" and name in UNSIGNED:
        return UNSIGNED[name]
    special = SPECIAL.get((name, "whole" if whole else first.kind)) or SPECIAL.get((name, ""))
    if special is not None:
        return lambda *x: fitted(special(*x, dtype), dtype)
    compute: Compute = getattr(torch, NAMES.get(name, name))
    return (lambda *x: fitted(compute(*x), dtype)) if dtype.kind == "uint" else compute


def _unsigned_order(compute: Compute, dtype: DType) -> Compute:
    back = 0 if dtype.kind == "bool" else ORDER
    return lambda x, y: compute(x + ORDER, y + ORDER) + back if back else compute(x + ORDER, y + ORDER)


def _compared(name: str, arguments: Sequence[DType]) -> Compute:
    """u64 beside a signed integer, by value."""
    at = next(i for i, dtype in enumerate(arguments) if dtype.name == "u64")
    compute: Compute = getattr(torch, NAMES.get(name, name))

    def work(*x: Tensor) -> Tensor:
        beyond = torch.where(x[at] < 0, 1, 0)  # of any signed integer: then only which is larger matters
        ones = [beyond if i == at else torch.zeros_like(one) for i, one in enumerate(x)]
        return torch.where(x[at] < 0, compute(*ones), compute(*(one.to(torch.int64) for one in x)))

    return work


def _unsigned_divided(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Quotient and remainder of u64; 0 where the divisor is."""
    divisor = torch.where(y > 0, y, 1)
    quotient = torch.div((x >> 1) & (2**63 - 1), divisor, rounding_mode="floor") << 1
    rest = x - quotient * divisor
    more = (rest + ORDER) >= (divisor + ORDER)
    quotient, rest = quotient + more.to(torch.int64), torch.where(more, rest - divisor, rest)
    above = (x + ORDER) >= (y + ORDER)
    quotient = torch.where(y < 0, above.to(torch.int64), quotient)
    rest = torch.where(y < 0, torch.where(above, x - y, x), rest)
    return torch.where(y == 0, 0, quotient), torch.where(y == 0, 0, rest)


def _unsigned_power(x: Tensor, n: Tensor) -> Tensor:
    found, factor = torch.ones_like(x + n), x
    for bit in range(64):
        found = torch.where((n >> bit) & 1 != 0, found * factor, found)
        factor = factor * factor
    return found


def _bits(x: Tensor) -> Tensor:
    """How many bits of an i64 are set."""
    found = torch.zeros_like(x)
    for bit in range(64):
        found += (x >> bit) & 1
    return found.to(torch.uint8)


UNSIGNED: Mapping[str, Compute] = {
    "pow": _unsigned_power,
    "floor_divide": lambda x, y: _unsigned_divided(x, y)[0],
    "remainder": lambda x, y: _unsigned_divided(x, y)[1],
    "fmod": lambda x, y: _unsigned_divided(x, y)[1],
    "bitwise_right_shift": lambda x, n: torch.where(
        (n < 0) | (n > 63), 0, torch.where(n == 0, x, ((x >> 1) & (2**63 - 1)) >> (n - 1).clamp(0, 63))
    ),
    "sign": lambda x: (x != 0).to(torch.int64),
    "abs": lambda x: x,
    "bitwise_count": _bits,
}
"""Functions of u64 that differ from those of i64."""


def _over(compute: Compute) -> Callable[[Tensor, Tensor, DType], Tensor]:
    """A quotient or remainder of integers; 0 where the divisor is 0."""

    def work(x: Tensor, y: Tensor, dtype: DType) -> Tensor:
        if dtype.kind == "uint":
            return torch.where(y == 0, 0, compute(x, torch.where(y == 0, 1, y), False))
        safe = torch.where((y == 0) | (y == -1), 1, y)
        return torch.where(y == 0, 0, torch.where(y == -1, compute(x, 1, True), compute(x, safe, False)))

    return work


def _floor_divided(x: Tensor, y: Tensor, dtype: DType) -> Tensor:
    odd = torch.isinf(x) | torch.isinf(y)  # the standard rounds that quotient down; PyTorch has NaN, or -1
    return torch.where(odd, torch.floor(x / y), torch.floor_divide(x, y))


def _rest(x: Tensor, y: Tensor, dtype: DType) -> Tensor:
    """The remainder of the quotient that is cut off; PyTorch's is NaN where the quotient is beyond the range."""
    step = 2.0**1000 if x.dtype == torch.float64 else 2.0**100
    return torch.fmod(torch.fmod(torch.fmod(x, y * step * step), y * step), y)


def _remainder(x: Tensor, y: Tensor, dtype: DType) -> Tensor:
    rest = _rest(x, y, dtype)
    rest = torch.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)
    return torch.where(rest == 0, torch.copysign(rest, y), rest)


def _shifted(compute: Compute, far: Callable[[Tensor], Any]) -> Callable[[Tensor, Tensor, DType], Tensor]:
    def work(x: Tensor, n: Tensor, dtype: DType) -> Tensor:
        bits = dtype.itemsize * 8
        outside = (n < 0) | (n >= bits)
        return torch.where(outside, far(x), compute(x, torch.where(outside, 0, n)))

    return work


def _cube_root(x: Tensor, dtype: DType) -> Tensor:
    wide = x.to(torch.float64)
    size = wide.abs()
    root = torch.exp2(torch.log2(torch.where(size > 0, size, 1)) / 3)
    root = root - (root - size / (root * root)) / 3
    root = torch.where(torch.isfinite(size) & (size > 0), root, size)
    return torch.copysign(root, wide).to(x.dtype)


def _gamma(x: Tensor, dtype: DType) -> Tensor:
    wide = x.to(torch.float64)
    sign = torch.where((wide < 0) & (torch.floor(wide) % 2 != 0), -1.0, 1.0)
    found = sign * torch.exp(torch.lgamma(wide))
    found = torch.where((wide < 0) & (wide == torch.floor(wide)), torch.nan, found)
    found = torch.where((wide == 0), torch.copysign(torch.full_like(wide, torch.inf), wide), found)
    return torch.where(wide == -torch.inf, torch.nan, found).to(x.dtype)


def _next(x: Tensor, y: Tensor, dtype: DType) -> Tensor:
    """The next number; for f16 and bf16 the next one of that dtype, by its bits."""
    if dtype.itemsize > 2:
        return torch.nextafter(x, y)
    bits = x.to(held_as(dtype)).view(torch.int16)
    away = (x < y) == (x > 0)
    step = torch.where(away, bits + 1, bits - 1)
    step = torch.where(x == 0, torch.where(y > 0, 1, -(2**15) + 1).to(torch.int16), step)
    moved = torch.where(x == y, y.to(held_as(dtype)).view(torch.int16), step).view(held_as(dtype)).to(torch.float32)
    return torch.where(torch.isnan(x) | torch.isnan(y), torch.nan, moved)


def _by_parts(name: str) -> Callable[..., Tensor]:
    return lambda *x: parts(getattr(torch, name), *x[:-1])  # the last one is the dtype


def _complex_expm1(x: Tensor, dtype: DType) -> Tensor:
    near = torch.complex(
        torch.expm1(x.real) * torch.cos(x.imag) - 2 * torch.sin(x.imag / 2) ** 2, torch.exp(x.real) * torch.sin(x.imag)
    )
    far = torch.exp(x)
    return torch.where(torch.isfinite(x) & (x != 0), near, torch.complex(far.real - 1, far.imag))


def _complex_log1p(x: Tensor, dtype: DType) -> Tensor:
    re, im = x.real.to(torch.float64), x.imag.to(torch.float64)
    small = torch.log1p(re * (2 + re) + im * im) / 2
    size = torch.where(torch.hypot(re, im) < 0.5, small, torch.log(torch.hypot(1 + re, im)))
    return torch.complex(size, torch.atan2(im, 1 + re)).to(x.dtype)


def _complex_sign(x: Tensor, dtype: DType) -> Tensor:
    far = parts(lambda part: torch.where(torch.isinf(part), torch.sign(part), 0), x)
    both = torch.isinf(x.real) & torch.isinf(x.imag)
    found = torch.where(torch.isinf(x), far, torch.sgn(x))
    return torch.where(torch.isnan(x) | both, complex(math.nan, math.nan), found)


def _complex_power(x: Tensor, n: Tensor, dtype: DType) -> Tensor:
    found = torch.where(n.real > 0, 0, complex(math.nan, math.nan)).to(x.dtype)
    found = torch.where(x == 0, found, torch.pow(x, n))
    return torch.where(n == 0, 1, torch.where(n == 1, x, found))


def _complex_tanh(x: Tensor, dtype: DType) -> Tensor:
    found = torch.tanh(x)
    flat = torch.isinf(x.real)
    return torch.complex(
        torch.where(flat, torch.sign(x.real), found.real),
        torch.where(flat, torch.copysign(torch.zeros_like(x.imag), x.imag), found.imag),
    )


def _scaled(factor: float) -> Callable[[Tensor, DType], Tensor]:
    return lambda x, dtype: x * number(factor, dtype, x.device)


SPECIAL: Mapping[tuple[str, str], Any] = {
    ("floor_divide", "whole"): _over(lambda x, y, negated: -x if negated else torch.div(x, y, rounding_mode="floor")),
    ("remainder", "whole"): _over(lambda x, y, negated: x * 0 if negated else torch.remainder(x, y)),
    ("fmod", "whole"): _over(lambda x, y, negated: x * 0 if negated else torch.fmod(x, y)),
    ("floor_divide", ""): _floor_divided,
    ("remainder", ""): _remainder,
    ("fmod", ""): _rest,
    ("bitwise_left_shift", ""): _shifted(lambda x, n: x << n, lambda x: x * 0),
    ("bitwise_right_shift", ""): _shifted(lambda x, n: x >> n, lambda x: torch.where(x < 0, -1, 0).to(x.dtype)),
    ("bitwise_count", ""): lambda x, dtype: _bits(torch.abs(x.to(torch.int64))),  # NumPy counts those of |x|
    ("isnan", "whole"): lambda x, dtype: torch.zeros_like(x, dtype=torch.bool),
    ("isinf", "whole"): lambda x, dtype: torch.zeros_like(x, dtype=torch.bool),
    ("isfinite", "whole"): lambda x, dtype: torch.ones_like(x, dtype=torch.bool),
    ("abs", "whole"): lambda x, dtype: x if x.dtype == torch.bool else torch.abs(x),
    ("real", "whole"): lambda x, dtype: x,
    ("real", ""): lambda x, dtype: x.real,
    ("imag", "complex"): lambda x, dtype: x.imag,
    ("imag", ""): lambda x, dtype: torch.zeros_like(x),
    ("conj", "float"): lambda x, dtype: x,
    ("conj", "complex"): lambda x, dtype: torch.conj(x).resolve_conj(),
    ("angle", ""): lambda x, dtype: torch.atan2(x.imag, x.real),
    ("sign", "complex"): _complex_sign,
    ("sign", "float"): lambda x, dtype: torch.where(torch.isnan(x), x, torch.sign(x)),
    ("sign", "whole"): lambda x, dtype: torch.sign(x),
    ("add", "complex"): _by_parts("add"),
    ("subtract", "complex"): _by_parts("sub"),
    ("negative", "complex"): _by_parts("neg"),
    ("round", "complex"): _by_parts("round"),
    ("pow", "complex"): _complex_power,
    ("expm1", "complex"): _complex_expm1,
    ("log1p", "complex"): _complex_log1p,
    ("tanh", "complex"): _complex_tanh,
    ("exp2", "complex"): lambda x, dtype: torch.exp(parts(lambda part: part * math.log(2), x)),
    ("cbrt", ""): _cube_root,
    ("gamma", ""): _gamma,
    ("lgamma", ""): lambda x, dtype: torch.where(x == -torch.inf, x, torch.lgamma(x)),
    ("nextafter", ""): _next,
    ("deg2rad", ""): _scaled(math.pi / 180),
    ("rad2deg", ""): _scaled(180 / math.pi),
}
"""Functions that need more than one call of PyTorch, by name and kind of the first argument."""
