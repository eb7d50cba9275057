"""C++ texts of operators: those that ``cuda.compute`` lacks, and callers' own."""

import hashlib
from typing import Any

from callboard.backends.cuda.cub.arguments import stored_name
from callboard.backends.cuda.cub.cccl import Cccl
from callboard.backends.cuda.kernels import data_text
from callboard.core.dtype import DType
from callboard.kernel.cub.checks import compute_dtype

__all__ = [
    "ALL",
    "COMPARED",
    "CTYPES",
    "NONE",
    "STORED",
    "comparison",
    "flagged",
    "join_text",
    "no_text",
    "operator",
    "predicate",
    "starts",
]

CTYPES = {
    "f32": "float",
    "f64": "double",
    "i8": "signed char",
    "i16": "short",
    "i32": "int",
    **{name: name for name in ("i64", "u8", "u16", "u32", "u64")},
}
"""Compute types in C."""
STORED = {**CTYPES, "f16": "Half", "bf16": "Brain"}
"""Storage types in C."""
JOINS = {
    "sum": "return (T)(a + b);",
    "product": "return (T)(a * b);",
    "min": "return a != a ? a : b != b || b < a ? b : a;",
    "max": "return a != a ? a : b != b || b > a ? b : a;",
}
"""NaN wins, as in NumPy; the operators of ``cuda.compute`` drop it or not, as the order of the tiles will have it."""
COMPARED, ALL, NONE = 0, 1, 2
"""Answers of a predicate: by comparison, or constant."""
SIGNS = {"less": "<", "less_equal": "<=", "equal": "==", "not_equal": "!=", "greater": ">", "greater_equal": ">="}


def _named(stem: str, body: str) -> str:
    """A name that no other text has: several are linked into one kernel."""
    return f"callboard_{stem}_{hashlib.sha256(body.encode()).hexdigest()[:16]}"


def _hidden(name: str, code: str) -> str:
    """A text whose helpers no other text meets."""
    return f"namespace {{\n{data_text('numbers.cuh').decode()}\n}}\n{code.replace('NAME', name)}\n"


def no_text(op: Any) -> str | None:
    """A custom operator has to have a body for here."""
    if op.python is not None and op.cuda is None:
        return "its operator has a body in Python only; pass cuda, its C++ text, too"
    return None


def join_text(op: Any, work: DType) -> str:
    """``T join(T a, T b)`` for a message's operation."""
    body = op.cuda if op.operation == "custom" else JOINS[op.operation]
    return f"typedef {CTYPES[work.name]} T;\n__device__ T join(T a, T b) {{\n#line 1\n{body}\n}}\n"


def operator(cccl: Cccl, op: Any, work: DType) -> Any:
    """The binary operator, as ``cuda.compute`` takes it."""
    kinds = cccl.compute.OpKind
    known = {"sum": kinds.PLUS, "product": kinds.MULTIPLIES}
    if not work.is_float:
        known |= {"min": kinds.MINIMUM, "max": kinds.MAXIMUM}
    if op.operation in known:
        return known[op.operation]
    text = f"""namespace {{
{join_text(op, work)}}}
extern "C" __device__ void NAME(void* a, void* b, void* out) {{ *(T*)out = join(*(T*)a, *(T*)b); }}"""
    name = _named("join", text)
    return cccl.raw_op(name, _hidden(name, text))


def comparison(cccl: Cccl, text: str, dtype: DType) -> Any:
    """Return the operator for a caller's order of keys, in which halves are widened."""
    work, stored = CTYPES[compute_dtype(dtype).name], STORED[stored_name(dtype)]
    code = f"""namespace {{
typedef {work} T;
__device__ bool before(T a, T b) {{
#line 1
{text}
}}
}}
extern "C" __device__ void NAME(void* a, void* b, void* out) {{
    *(bool*)out = before(widen<T, {stored}>(*({stored}*)a), widen<T, {stored}>(*({stored}*)b));
}}"""
    name = _named("before", code)
    return cccl.raw_op(name, _hidden(name, code))


def _by_index(cccl: Cccl, stem: str, helpers: str, kept: str, fields: str, index: str, size: int) -> tuple[str, Any]:
    code = f"""namespace {{
{helpers}
struct State {{ {fields} }};
}}
extern "C" __device__ void NAME(void* state, void* index, void* out) {{
    const State& p = *(const State*)state;
    const i64 i = (i64)*({CTYPES[index]}*)index;
    *(u8*)out = {kept};
}}"""
    name = _named(stem, code)
    return name, cccl.raw_op(name, _hidden(name, code), size)


def flagged(cccl: Cccl, index: str, second: bool = False) -> tuple[str, Any]:
    """Predicate: the flag at an index is not 0. State: the address of the flags.

    ``second``: The same by another name, where two are linked.
    """
    kept = "(u8)(0 != p.flags[i])" if second else "(u8)(p.flags[i] != 0)"
    return _by_index(cccl, "flag", "", kept, "const u8* flags;", index, 8)


def starts(cccl: Cccl, dtype: DType, index: str) -> tuple[str, Any]:
    """Predicate: the element at an index differs from the one before it. State: the address of the elements."""
    work, stored = CTYPES[compute_dtype(dtype).name], STORED[stored_name(dtype)]
    at = f"widen<{work}, {stored}>(p.x[i])"
    kept = f"(u8)(i == 0 || {at} != {at.replace('[i]', '[i - 1]')})"
    return _by_index(cccl, "start", "", kept, f"const {stored}* x;", index, 8)


def predicate(cccl: Cccl, op: Any) -> tuple[str, Any]:
    """Predicate: an element is kept. State: the number, and one of :data:`COMPARED`, :data:`ALL`, :data:`NONE`."""
    dtype = op.x.dtype
    work, stored = CTYPES[compute_dtype(dtype).name], STORED[stored_name(dtype)]
    if op.comparison == "custom":
        body = op.cuda
    else:  # the state is read for each element: unneeded state costs time
        body = f"return a {SIGNS[op.comparison]} number;"
        if not compute_dtype(dtype).is_float:
            body = f"if (how) return how == {ALL};\n{body}"
    code = f"""namespace {{
typedef {work} T;
struct State {{ alignas(8) T number; alignas(8) i64 how; }};
__device__ bool kept(T a, T number, i64 how) {{
#line 1
{body}
}}
}}
extern "C" __device__ void NAME(void* state, void* a, void* out) {{
    const State& p = *(const State*)state;
    *(u8*)out = kept(widen<T, {stored}>(*({stored}*)a), p.number, p.how);
}}"""
    name = _named("keep", code)
    return name, cccl.raw_op(name, _hidden(name, code), 16)
