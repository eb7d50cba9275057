"""Cost of parallel primitives: through callboard, called directly, and in CuPy.

    python benchmarks/cub.py --json cub.json
    python benchmarks/cub.py --quick --device cpu

Sums, running sums, sorts of keys and of pairs, histograms, selections by flags and by a comparison, for 10⁸ elements on
CUDA and 10⁷ on the CPU; from arrays to an array made ahead (callboard and ``cuda.compute``; the others make theirs). On
CUDA the raw call is ``cuda.compute``, with objects made ahead and storage of its own; it has no selection by flags that
is not callboard's own. Selections are into given arrays. Speeds count each byte read and written once. There is no bar.
"""

from typing import Any

import numpy as np
from _maths import Problem, Run, Subjects, compare

KINDS: dict[str, tuple[str, float, int]] = {
    # dtype, bytes of an element that are read or written at least, calls at once on CUDA
    "reduce": ("f4", 4, 100),
    "reduce min": ("f4", 4, 100),
    "scan": ("f4", 8, 100),
    "sort": ("f4", 8, 20),
    "sort i8": ("i8", 16, 20),
    "sort pairs": ("f4", 16, 20),
    "histogram": ("f4", 4, 100),
    "select": ("f4", 7, 50),
    "select if": ("f4", 6, 50),
}
BINS = 256
STEP = 1009
"""Every so manieth element of a long result is compared: to bring 10⁸ to the host takes longer than the measurement."""


def problems(kind: str, quick: bool) -> list[Problem]:
    n, calls = (10**4 if quick else 10**7, 3) if kind == "cpu" else (10**6 if quick else 10**8, 0)
    found = []
    for work, (dtype, nbytes, count) in KINDS.items():
        title = f"{work} {n:.0e} {dtype}".replace("e+0", "e")
        settings = {"work": work, "n": n, "dtype": dtype}
        without = ("raw",) if work == "select" else ()
        base = None if work != "select" or kind == "cpu" else "cupy"
        found.append(Problem(title, settings, calls or count, None, 1e-9 * n * nbytes, "GB/s", base, without))
    return found


def operand(n: int, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.integers(0, 2**40, n) if dtype == "i8" else rng.random(n, np.float32)


def flags_of(n: int) -> np.ndarray:
    return np.random.default_rng(2).random(n, np.float32) < 0.5


async def ours(device: Any, work: str, n: int, dtype: str) -> Run:
    cub = device.cub
    x = await device.put(operand(n, dtype))
    if work.startswith("reduce"):
        operation = "min" if work == "reduce min" else "sum"
        out = await cub.reduce(x, operation=operation)
        return Run(lambda: cub.reduce(x, operation=operation, out=out), out.get)
    if work in ("scan", "sort", "sort i8"):
        call = cub.scan if work == "scan" else cub.sort
        out = await call(x)
        return Run(lambda: call(x, out=out), out[::STEP].get)
    if work == "sort pairs":
        values = await device.put(np.arange(n, dtype=np.int32))
        out = cub.sort_pairs(x, values)
        await out.values
        return Run(
            lambda: cub.sort_pairs(x, values, out_keys=out.keys, out_values=out.values).values,
            out.values[::STEP].get,
        )
    if work == "histogram":
        out = await cub.histogram_even(x, BINS, 0, 1)
        return Run(lambda: cub.histogram_even(x, BINS, 0, 1, out=out), out.get)
    out, count = await device.zeros(n, "f32"), await device.empty((), "i64")
    if work == "select":
        flags = await device.put(flags_of(n))
        return Run(lambda: cub.select(x, flags, out=out, count=count), count.get)
    return Run(lambda: cub.select_if(x, comparison="less", number=0.5, out=out, count=count), count.get)


def direct(work: str, n: int, dtype: str) -> Run:
    x, flags, values = operand(n, dtype), flags_of(n), np.arange(n, dtype=np.int32)

    def pairs() -> Any:
        order = np.argsort(x, kind="stable")
        return x[order], values[order]

    calls: dict[str, Any] = {
        "reduce": x.sum,
        "reduce min": x.min,
        "scan": x.cumsum,
        "sort": lambda: np.sort(x, kind="stable"),
        "sort i8": lambda: np.sort(x, kind="stable"),
        "sort pairs": lambda: pairs()[1],
        "histogram": lambda: np.histogram(x, BINS, (0, 1))[0],
        "select": lambda: x[flags],
        "select if": lambda: x[x < np.float32(0.5)],
    }
    call = calls[work]
    return Run(call, lambda: sample(work, call()))


def sample(work: str, result: Any) -> np.ndarray:
    """What is compared of a result of NumPy's or CuPy's."""
    if work.startswith("select"):
        return np.asarray(result.size)
    short = result if work.startswith(("reduce", "histogram")) else result[::STEP]
    return np.asarray(short.get() if hasattr(short, "get") else short)


class Span:
    """Device memory as ``cuda.compute`` takes it."""

    def __init__(self, cuda: Any, dtype: Any, n: int, array: np.ndarray | None = None) -> None:
        self.dtype, self.n = np.dtype(dtype), n
        self.nbytes = n * self.dtype.itemsize
        self.ptr = cuda.put(array) if array is not None else cuda.empty(self.nbytes)

    def data_ptr(self) -> int:
        return int(self.ptr)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (self.ptr, False)
        return {"shape": (self.n,), "typestr": self.dtype.str, "data": data, "strides": None, "version": 3}


class Stream:
    """A stream as ``cuda.compute`` takes it."""

    def __init__(self, native: int) -> None:
        self.native = native

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.native


LESS = """extern "C" __device__ void less(void* a, void* out) { *(unsigned char*)out = *(float*)a < 0.5f; }"""


def raw(cuda: Any, work: str, n: int, dtype: str) -> Run:
    from cuda import compute
    from cuda.core import Program, ProgramOptions

    array = operand(n, dtype)
    x, kind = Span(cuda, array.dtype, n, array), array.dtype
    out, ops = Span(cuda, kind, 1 if work.startswith("reduce") else n), compute.OpKind
    values = Span(cuda, np.int32, n, np.arange(n, dtype=np.int32)) if work == "sort pairs" else None
    moved = Span(cuda, np.int32, n) if values is not None else None
    found = Span(cuda, np.int64, 2)
    start = np.full(1, np.inf if work == "reduce min" else 0, kind)
    keys = {"d_in_keys": x, "d_out_keys": out, "d_in_values": values, "d_out_values": moved}
    line = {"d_in": x, "d_out": out}
    if work.startswith("reduce"):
        both = line | {"op": ops.MINIMUM if work == "reduce min" else ops.PLUS, "h_init": start}
        call = compute.make_reduce_into(**both)
    elif work == "scan":
        both = line | {"op": ops.PLUS, "init_value": start}
        call = compute.make_inclusive_scan(**both)
    elif work.startswith("sort"):
        both = keys
        call = compute.make_radix_sort(**both, order=compute.SortOrder.ASCENDING)
    elif work == "histogram":
        return histogram(compute, cuda, x, n)
    else:
        options = ProgramOptions(arch="sm_90", relocatable_device_code=True, link_time_optimization=True)
        code = Program(LESS, "c++", options).compile("ltoir").code
        both = line | {"d_num_selected_out": found, "cond": compute.op.RawOp(ltoir=code, name="less")}
        call = compute.make_select(**both)
    rest = {"num_items": n, **both}
    temp = Span(cuda, np.uint8, int(call(temp_storage=None, **rest)))
    stream = Stream(cuda.stream)
    result = moved or (found if work == "select if" else out)

    def told() -> np.ndarray:
        got = cuda.get(result.ptr, (result.n,), result.dtype)
        return np.asarray(got[0]) if work.startswith(("reduce", "select")) else got[::STEP]

    return Run(lambda: call(temp_storage=temp, stream=stream, **rest), told)


def histogram(compute: Any, cuda: Any, x: Span, n: int) -> Run:
    out = Span(cuda, np.int32, BINS)
    both = {"d_samples": x, "d_histogram": out, "num_samples": n, "h_num_output_levels": np.array([BINS + 1], np.int32)}
    both |= {"h_lower_level": np.zeros(1, np.float32), "h_upper_level": np.ones(1, np.float32)}
    call, stream = compute.make_histogram_even(**both), Stream(cuda.stream)
    temp = Span(cuda, np.uint8, int(call(temp_storage=None, **both)))
    return Run(lambda: call(temp_storage=temp, stream=stream, **both), lambda: cuda.get(out.ptr, (BINS,), np.int32))


def cupy(cupy: Any, work: str, n: int, dtype: str) -> Run:
    x, flags = cupy.asarray(operand(n, dtype)), cupy.asarray(flags_of(n))
    values = cupy.arange(n, dtype=np.int32)

    def pairs() -> Any:
        order = cupy.argsort(x)
        return x[order], values[order]

    calls: dict[str, Any] = {
        "reduce": x.sum,
        "reduce min": x.min,
        "scan": lambda: cupy.cumsum(x),
        "sort": lambda: cupy.sort(x),
        "sort i8": lambda: cupy.sort(x),
        "sort pairs": lambda: pairs()[1],
        "histogram": lambda: cupy.histogram(x, BINS, (0, 1))[0],
        "select": lambda: x[flags],
        "select if": lambda: x[x < np.float32(0.5)],
    }
    call = calls[work]
    return Run(call, lambda: sample(work, call()))


if __name__ == "__main__":
    compare(__doc__, "cub", problems, Subjects(ours, direct, raw, cupy))
