"""An epilogue as CUDA C++: one kernel for the result, one for each reduction."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from callboard.backends.cuda.kernels import data_text
from callboard.core.dtype import DType
from callboard.kernel.cutlass.epilogue import INPUTS, EpilogueNode

__all__ = ["THREADS", "Array", "epilogue_text", "functions_text", "value_text"]

THREADS = 256
STORED = {"f16": "Half", "bf16": "Brain", "f32": "float", "f64": "double", "i8": "signed char", "i32": "int"}
STORED |= {"f8_e4m3": "u8", "f8_e5m2": "u8"}

PRELUDE = """
template <typename A> __device__ A function_gelu(A x) {
    return A(0.5) * x * (A(1) + tanh(A(0.7978845608028654) * (x + A(0.044715) * x * x * x)));
}
template <typename A> __device__ A function_sigmoid(A x) { return A(1) / (A(1) + exp(-x)); }
template <typename A> __device__ A function_silu(A x) { return x / (A(1) + exp(-x)); }
template <typename A> __device__ A greater(A x, A y) { return x != x || x > y ? x : y; }  // NaN wins
template <typename A> __device__ A lesser(A x, A y) { return x != x || x < y ? x : y; }
__device__ signed char to_i8(double x) {
    return x != x || x <= -128.0 ? (signed char)-128 : x >= 127.0 ? (signed char)127 : (signed char)rint(x);
}
__device__ int to_i32(double x) {
    return x != x ? 0 : x >= 2147483647.0 ? 2147483647 : x <= -2147483648.0 ? (-2147483647 - 1) : (int)rint(x);
}
__device__ u8 to_e4m3(float x) { return to_small(x < -448.f ? -448.f : x > 448.f ? 448.f : x, E4M3); }
__device__ u8 to_e5m2(float x) { return to_small(x < -57344.f ? -57344.f : x > 57344.f ? 57344.f : x, E5M2); }
"""
FUNCTIONS = {
    "relu": "{0} < A(0) ? A(0) : {0}",
    "gelu": "function_gelu<A>({0})",
    "silu": "function_silu<A>({0})",
    "sigmoid": "function_sigmoid<A>({0})",
    "tanh": "tanh({0})",
    "exp": "exp({0})",
    "log": "log({0})",
    "erf": "erf({0})",
    "sqrt": "sqrt({0})",
    "abs": "fabs({0})",
    "negative": "-{0}",
    "add": "{0} + {1}",
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "divide": "{0} / {1}",
    "maximum": "greater<A>({0}, {1})",
    "minimum": "lesser<A>({0}, {1})",
}
QUANTIZED = {
    "i8": "(A)to_i8({0})",
    "f8_e4m3": "(A)from_small(to_e4m3((float){0}), E4M3)",
    "f8_e5m2": "(A)from_small(to_e5m2((float){0}), E5M2)",
}


class Array(NamedTuple):
    """An array that the kernels address by matrix (or group), row and column.

    Attributes:
        name: Name of its fields in the arguments: ``p_<name>`` and its steps ``s_``, ``r_`` and ``c_<name>``.
        dtype: The dtype of its elements.
    """

    name: str
    dtype: DType


def epilogue_text(
    nodes: Sequence[EpilogueNode],
    accumulated: DType,
    computed: DType,
    out: DType,
    c: DType | None,
    inputs: dict[str, DType],
    grouped: bool,
) -> str:
    """The kernels ``finish``, ``reduce0``, ``reduce1`` and so on.

    Args:
        nodes: The epilogue.
        accumulated: Dtype of the product in scratch.
        computed: Dtype that the epilogue computes in.
        out, c: Dtypes of the result and of the addend.
        inputs: The dtypes of the arrays by name.
        grouped: The first axis of a number for each column is the row's group.
    """
    arrays = [Array("out", out), *([Array("add", c)] if c else [])]
    arrays += [Array(f"in_{name}", dtype) for name, dtype in inputs.items()]
    reduced = [at for at, node in enumerate(nodes) if node.kind == "reduce"]
    held = STORED[computed.name]
    lines = [functions_text(held)]
    lines += ["struct Args {", "    void *sum, *groups;", "    i64 rows, n, stack, empty;", "    double alpha, beta;"]
    for array in arrays:
        lines += [f"    void* p_{array.name};", f"    i64 s_{array.name}, r_{array.name}, c_{array.name};"]
    lines += [f"    void* reduced{i};" for i in range(len(reduced))]
    lines += ["};", *_element(nodes, accumulated, out, c, inputs, reduced, grouped)]
    lines += _finish(accumulated, out, not nodes, grouped)
    for i, at in enumerate(reduced):
        how, _, per = nodes[at].how.partition(" ")
        lines += _reduce(i, how, per, held)
    return "\n".join(lines) + "\n"


def functions_text(held: str) -> str:
    """The functions that epilogues call, of values held as this type."""
    texts = [data_text(name).decode() for name in ("numbers.cuh", "convert.cuh")]
    return "\n".join([*texts, f"typedef {held} A;", PRELUDE])


def _element(
    nodes: Sequence[EpilogueNode],
    accumulated: DType,
    out: DType,
    c: DType | None,
    inputs: dict[str, DType],
    reduced: Sequence[int],
    grouped: bool,
) -> Iterator[str]:
    yield "struct Values { A out; " + " ".join(f"A r{i};" for i in range(len(reduced))) + " };"
    yield "__device__ __forceinline__ Values element(const Args& p, i64 row, i64 col) {"
    yield "    const i64 which = row / p.stack, i = row % p.stack;"
    if grouped:
        yield "    const i64 found_in = ((const int*)p.groups)[row], group = found_in < 0 ? 0 : found_in;"
    none = "p.empty || found_in < 0" if grouped else "p.empty"
    yield f"    A x = {none} ? A(0) : (A)((const {STORED[accumulated.name]}*)p.sum)[row * p.n + col];"
    yield "    x = (A)p.alpha * x;"
    if c is not None:
        yield f"    if (p.beta != 0.0) x += (A)p.beta * {_loaded(c, _place('add', 'which', c))};"

    def read(node: EpilogueNode) -> str:
        stack = "group" if grouped and node.kind == "column" else "which"
        return _loaded(inputs[node.name], _place(f"in_{node.name}", stack, inputs[node.name]))

    for at, node in enumerate(nodes):
        yield f"    const A v{at} = {value_text(node, read)};"
    last = f"v{len(nodes) - 1}" if nodes else "x"
    yield f"    Values found = {{{', '.join([last, *(f'v{at}' for at in reduced)])}}};"
    yield "    return found;"
    yield "}"


def _place(name: str, stack: str, dtype: DType) -> str:
    where = f"{stack} * p.s_{name} + i * p.r_{name} + col * p.c_{name}"
    return f"((const {STORED[dtype.name]}*)p.p_{name})[{where}]"


def _loaded(dtype: DType, value: str) -> str:
    if dtype.name in ("f16", "bf16"):
        return f"(A)widen<float>({value})"
    if dtype.name.startswith("f8"):
        return f"(A)from_small({value}, {'E4M3' if dtype.name == 'f8_e4m3' else 'E5M2'})"
    return f"(A){value}"


def _stored(dtype: DType, value: str) -> str:
    """A value as it is stored."""
    if dtype.name in ("f16", "bf16"):
        return f"narrow<{STORED[dtype.name]}>({value if dtype.name == 'f16' else f'(float)({value})'})"
    return {
        "i8": f"to_i8({value})",
        "i32": f"to_i32({value})",
        "f8_e4m3": f"to_e4m3((float)({value}))",
        "f8_e5m2": f"to_e5m2((float)({value}))",
    }.get(dtype.name, f"({STORED[dtype.name]})({value})")


def value_text(node: EpilogueNode, read: Callable[[EpilogueNode], str]) -> str:
    """A node as an expression of ``x`` (the product) and of the nodes before it, ``v0`` and so on.

    Args:
        node: The node.
        read: The expression of an input.
    """
    arguments = [f"v{one}" for one in node.arguments]
    if node.kind == "accumulator":
        return "x"
    if node.kind == "reduce":
        return arguments[0]
    if node.kind == "number":
        return _literal(node.value)
    if node.kind == "quantize":
        return QUANTIZED[node.name].format(*arguments)
    return read(node) if node.kind in INPUTS else FUNCTIONS[node.kind].format(*arguments)


def _literal(value: float) -> str:
    if value in (float("inf"), float("-inf")):
        return f"{'-' if value < 0 else ''}(A)__uint_as_float(0x7f800000u)"
    return f"(A)({value!r})"


def _finish(accumulated: DType, out: DType, plain: bool, grouped: bool) -> Iterator[str]:
    yield f'extern "C" __global__ void __launch_bounds__({THREADS}) finish(const Args p) {{'
    start, step = f"blockIdx.x * {THREADS}ll + threadIdx.x", f"gridDim.x * {THREADS}ll"
    yield f"    for (i64 at = {start}; at < p.rows * p.n; at += {step}) {{"
    yield "        const i64 row = at / p.n, col = at % p.n, which = row / p.stack, i = row % p.stack;"
    target = f"(({STORED[out.name]}*)p.p_out)[which * p.s_out + i * p.r_out + col * p.c_out]"
    if plain and accumulated.name == "i32" and out.name == "i32":
        yield "        if (p.alpha == 1.0 && p.beta == 0.0) {"
        none = "p.empty || ((const int*)p.groups)[row] < 0" if grouped else "p.empty"
        yield f"            {target} = {none} ? 0 : ((const int*)p.sum)[at];"
        yield "            continue;"
        yield "        }"
    yield f"        {target} = {_stored(out, 'element(p, row, col).out')};"
    yield "    }"
    yield "}"


START = {"sum": "0.0", "mean": "0.0", "max": "-(double)__uint_as_float(0x7f800000u)"}
START |= {"min": "(double)__uint_as_float(0x7f800000u)"}
JOIN = {"sum": "{0} + {1}", "mean": "{0} + {1}", "max": "greater<double>({0}, {1})", "min": "lesser<double>({0}, {1})"}


def _reduce(at: int, how: str, per: str, held: str) -> Iterator[str]:
    """In double: for each row a block; for each 32 columns of a matrix a block of 8 rows of threads."""
    yield f'extern "C" __global__ void __launch_bounds__({THREADS}) reduce{at}(const Args p) {{'
    yield f"    __shared__ double parts[{THREADS}];"
    yield f"    double sum = {START[how]};"
    join = f"sum = {JOIN[how].format('sum', '(double)element(p, row, col).r' + str(at))};"
    last = f"({held})(sum{' / (double)count' if how == 'mean' else ''})"
    if per == "row":
        yield "    const i64 row = blockIdx.x, count = p.n;"
        yield f"    for (i64 col = threadIdx.x; col < p.n; col += {THREADS}) {join}"
        yield from _halved(how, 1)
        yield f"    if (threadIdx.x == 0) (({held}*)p.reduced{at})[row] = {last};"
    else:
        yield "    const i64 across = (p.n + 31) / 32, matrix = blockIdx.x / across, count = p.stack;"
        yield "    const i64 col = blockIdx.x % across * 32 + threadIdx.x % 32;"
        yield "    for (i64 i = threadIdx.x / 32; col < p.n && i < p.stack; i += 8) {"
        yield "        const i64 row = matrix * p.stack + i;"
        yield f"        {join}"
        yield "    }"
        yield from _halved(how, 32)
        yield f"    if (threadIdx.x < 32 && col < p.n) (({held}*)p.reduced{at})[matrix * p.n + col] = {last};"
    yield "}"


def _halved(how: str, least: int) -> Iterator[str]:
    yield "    parts[threadIdx.x] = sum;"
    yield "    __syncthreads();"
    yield f"    for (int half = {THREADS // 2}; half >= {least}; half /= 2) {{"
    yield "        if (threadIdx.x < half) {"
    yield f"            sum = {JOIN[how].format('sum', 'parts[threadIdx.x + half]')};"
    yield "            parts[threadIdx.x] = sum;"
    yield "        }"
    yield "        __syncthreads();"
    yield "    }"
