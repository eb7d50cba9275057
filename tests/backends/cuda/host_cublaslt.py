"""A stand-in for ``nvmath.bindings.cublasLt``, and for the kernels of ``data/blas_lt.cu``, on host memory.

Products are column-major and in double precision, with everything that a descriptor says. An algorithm is a number in
the memory that a search was given, and that memory is wiped when the search's result is gone: a plan that does not keep
it fails here, too.
"""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
from host_driver import HostDriver, StatusError, array_at

from callboard.backends.cuda.blas_lt.unfused import EpilogueArgs, SumArgs
from callboard.core.dtype import DTYPES

TYPES = {2: "f16", 14: "bf16", 0: "f32", 1: "f64", 3: "i8", 10: "i32", 28: "f8_e4m3", 29: "f8_e5m2"}
MAGIC = 0xA160
NOT_SUPPORTED = 15
NAMES = {
    "TRANSA": 3,
    "TRANSB": 4,
    "EPILOGUE": 7,
    "POINTER_MODE": 2,
    "BIAS_POINTER": 8,
    "BIAS_BATCH_STRIDE": 10,
    "EPILOGUE_AUX_POINTER": 11,
    "EPILOGUE_AUX_LD": 12,
    "EPILOGUE_AUX_BATCH_STRIDE": 13,
    "A_SCALE_POINTER": 17,
    "B_SCALE_POINTER": 18,
    "D_SCALE_POINTER": 20,
    "AMAX_D_POINTER": 21,
    "EPILOGUE_AUX_DATA_TYPE": 22,
    "FAST_ACCUM": 25,
    "BIAS_DATA_TYPE": 26,
    "A_SCALE_MODE": 31,
    "B_SCALE_MODE": 32,
}
BY_NUMBER = {number: name for name, number in NAMES.items()}
RELU, BIAS, GELU, AUX, BACKWARD, BGRAD, BGRADA, BGRADB = 2, 4, 32, 128, (136, 152, 192, 208), (152, 208), 256, 512


class LtError(StatusError):
    pass


class Results:
    """``MatmulHeuristicResult``: an array, or one of its elements."""

    def __init__(self, count: int, memory: Any = None, at: int = 0) -> None:
        self._owns = memory is None
        self._memory = (ctypes.c_uint64 * (12 * count))() if memory is None else memory
        self._at = at
        self.workspace_size, self.state = 1024, 0

    @property
    def ptr(self) -> int:
        return ctypes.addressof(self._memory) + 96 * self._at

    def __getitem__(self, at: int) -> "Results":
        return Results(1, self._memory, at)

    def __del__(self) -> None:
        if self._owns:
            ctypes.memset(self._memory, 0, ctypes.sizeof(self._memory))


class HostCublasLt:
    """The functions of the binding that the backend calls.

    Attributes:
        unknown: Epilogues for which there is no kernel.
        only_wide: No kernel takes operands that do not start at multiples of 16 bytes.
        wide, narrow: Identities of the algorithms that it proposes for operands that start at multiples of 16 bytes,
            and for others, in order. 13 is the one that multiplies vectors.
        durations: By identity: milliseconds of one product after the other, the last of all that follow; 1 where
            nothing is said.
        failing: Identities of algorithms that say that they cannot.
        sums: By identity: what an algorithm multiplies and adds up in, if not in double precision.
        chosen: Identities of the algorithms that multiplied.
        live: Descriptors and layouts that have not been destroyed.
    """

    cuBLASLtError = LtError  # noqa: N815 - the binding's names
    MatmulHeuristicResult = Results
    MatmulDescAttribute = SimpleNamespace(**NAMES)
    MatrixLayoutAttribute = SimpleNamespace(BATCH_COUNT=5, STRIDED_BATCH_OFFSET=6)
    MatmulPreferenceAttribute = SimpleNamespace(
        MAX_WORKSPACE_BYTES=1,
        REDUCTION_SCHEME_MASK=3,
        **{f"MIN_ALIGNMENT_{operand}_BYTES": 5 + i for i, operand in enumerate("ABCD")},
    )
    MatmulAlgoConfigAttribute = SimpleNamespace(ID=0)

    def __init__(self, driver: HostDriver) -> None:
        self._driver = driver
        self._next = 1
        self.unknown: set[int] = set()
        self.only_wide = False
        self.wide: tuple[int, ...] = (66, 13)
        self.narrow: tuple[int, ...] = (23, 13)
        self.durations: dict[int, list[float]] = {}
        self.failing: set[int] = set()
        self.sums: dict[int, str] = {}
        self.chosen: list[int] = []
        self.live: dict[int, dict[Any, Any]] = {}
        self.closed = False

    def _new(self, **what: Any) -> int:
        self._next += 1
        self.live[self._next] = what
        return self._next

    def create(self) -> int:
        return 0x17

    def destroy(self, handle: int) -> None:
        assert handle == 0x17
        self.closed = True

    def get_matmul_desc_attribute_dtype(self, attribute: int) -> Any:
        return np.int64 if "POINTER" in BY_NUMBER[attribute] and attribute != 2 else np.int32

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        return self._new(compute=compute, scale=scale)

    def matmul_desc_set_attribute(self, desc: int, attribute: int, at: int, nbytes: int) -> None:
        self.live[desc][BY_NUMBER[attribute]] = int.from_bytes(ctypes.string_at(at, nbytes), "little")

    def matrix_layout_create(self, kind: int, rows: int, cols: int, ld: int) -> int:
        assert ld >= rows > 0
        assert cols > 0
        return self._new(dtype=DTYPES[TYPES[kind]], rows=rows, cols=cols, ld=ld, batch=1, step=0)

    def matrix_layout_set_attribute(self, layout: int, attribute: int, at: int, nbytes: int) -> None:
        name = {5: "batch", 6: "step"}[attribute]
        self.live[layout][name] = int.from_bytes(ctypes.string_at(at, nbytes), "little", signed=True)

    def matmul_preference_create(self) -> int:
        return self._new()

    def matmul_preference_set_attribute(self, preference: int, attribute: int, at: int, nbytes: int) -> None:
        self.live[preference][attribute] = int.from_bytes(ctypes.string_at(at, nbytes), "little")

    def destroyed(self, what: int) -> None:
        del self.live[what]

    matmul_desc_destroy = matrix_layout_destroy = matmul_preference_destroy = destroyed

    # -- algorithms ----------------------------------------------------------------------------------------------------

    def matmul_algo_get_heuristic(
        self,
        handle: int,
        desc: int,
        a: int,
        b: int,
        c: int,
        d: int,
        preference: int,
        count: int,
        at: int,
        returned: int,
    ) -> None:
        alignment = min(self.live[preference][5 + i] for i in range(4))
        if self.live[desc]["EPILOGUE"] in self.unknown or (self.only_wide and alignment < 16):
            raise LtError(NOT_SUPPORTED)
        proposed = (self.wide if alignment == 16 else self.narrow)[:count]
        for i, identity in enumerate(proposed):
            ctypes.c_uint64.from_address(at + 96 * i).value = MAGIC << 32 | alignment << 16 | identity
        ctypes.c_int32.from_address(returned).value = len(proposed)

    def _algorithm(self, at: int) -> tuple[int, int]:
        word = ctypes.c_uint64.from_address(at).value
        assert word >> 32 == MAGIC, "the algorithm's memory is gone"
        return word & 0xFFFF, word >> 16 & 0xFFFF

    def matmul_algo_config_get_attribute(
        self, algorithm: int, attribute: int, at: int, nbytes: int, written: int
    ) -> None:
        ctypes.c_int32.from_address(at).value = self._algorithm(algorithm)[0]

    # -- the product ---------------------------------------------------------------------------------------------------

    def _stack(self, address: int, layout: int) -> Any:
        of = self.live[layout]
        shape, steps = (of["batch"], of["rows"], of["cols"]), (of["step"], 1, of["ld"])
        reach = (of["batch"] - 1) * of["step"] + (of["cols"] - 1) * of["ld"] + of["rows"]
        assert self._driver.on_device(address, reach * of["dtype"].itemsize)
        return array_at(address, of["dtype"].np, shape, steps)

    def _number(self, address: int, dtype: str, on_device: bool = True) -> float:
        assert self._driver.on_device(address) == on_device
        return float(array_at(address, DTYPES[dtype].np, (1,), (1,))[0])

    def _scale(self, says: dict[Any, Any], side: str, outer: int, k: int) -> Any:
        """A scale as a factor of ``[outer, k]``: one number, one for each row, for each 1x128 or 128x128 elements."""
        at, mode = says[f"{side}_SCALE_POINTER"], says.get(f"{side}_SCALE_MODE", 0)
        assert self._driver.on_device(at)
        blocks, tiles = -(-k // 128), -(-outer // 128)
        shape, steps = {
            0: ((1, 1), (0, 0)),
            3: ((outer, 1), (1, 0)),
            4: ((outer, blocks), (1, outer)),
            5: ((tiles, blocks), (-(-blocks // 4) * 4, 1)),
        }[mode]
        numbers = array_at(at, np.float32, shape, steps).astype("f8")
        rows, columns = np.indices((outer, k))
        return numbers[rows // (128 if mode == 5 else 1) * (mode > 0), columns // 128 * (mode > 3)]

    def matmul(
        self,
        *arguments: int,
    ) -> None:
        _, desc, alpha, a, la, b, lb, beta, c, lc, d, ld, algorithm, workspace, nbytes, stream = arguments
        says = self.live[desc]
        identity, alignment = self._algorithm(algorithm)
        self.chosen.append(identity)
        if identity in self.failing:
            raise LtError(NOT_SUPPORTED)
        durations = self.durations.get(identity, [1.0])
        self._driver.clock += durations.pop(0) if len(durations) > 1 else durations[0]
        assert all(address % alignment == 0 for address in (a, b, c, d))
        assert stream
        self._driver.streams.add(stream)
        assert not nbytes or self._driver.on_device(workspace, nbytes)
        kind = TYPES[says["scale"]]
        on_device = says["POINTER_MODE"] == 1
        x, y = (self._stack(at, layout).astype("f8") for at, layout in ((a, la), (b, lb)))
        x = x.swapaxes(1, 2) if says["TRANSA"] else x
        y = y.swapaxes(1, 2) if says["TRANSB"] else y
        factor = self._number(alpha, kind, on_device)
        if "A_SCALE_POINTER" in says:
            x = x * self._scale(says, "A", *x.shape[1:])
        if "B_SCALE_POINTER" in says:
            y = y * self._scale(says, "B", *y.shape[:0:-1]).T
        sums = self.sums.get(identity, "f8")
        value = factor * (x.astype(sums) @ y.astype(sums)).astype("f8")
        if (added := self._number(beta, kind, on_device)) != 0:
            value = value + added * self._stack(c, lc).astype("f8")
        value = self._finished(says, value, x, y)
        out = self._stack(d, ld)
        if "AMAX_D_POINTER" in says:
            array_at(says["AMAX_D_POINTER"], np.float32, (1,), (1,))[...] = np.abs(value).max()
        out[...] = value.astype(out.dtype)

    def _finished(self, says: dict[Any, Any], value: Any, x: Any, y: Any) -> Any:
        epilogue = says["EPILOGUE"]
        batch, rows, cols = value.shape
        if "BIAS_POINTER" in says:
            length = cols if epilogue == BGRADB else rows
            dtype = DTYPES[TYPES[says["BIAS_DATA_TYPE"]]].np
            bias = array_at(says["BIAS_POINTER"], dtype, (batch, length), (says.get("BIAS_BATCH_STRIDE", 0), 1))
        if epilogue & BIAS and epilogue not in BACKWARD:
            value = value + bias[:, :, None].astype("f8")
        if (epilogue & AUX and epilogue & RELU) or epilogue in (136, 152):
            ld, step = says["EPILOGUE_AUX_LD"], says.get("EPILOGUE_AUX_BATCH_STRIDE", 0)
            assert ld % 128 == 0
            assert ld >= rows
            mask = array_at(
                says["EPILOGUE_AUX_POINTER"], np.uint8, (batch, cols, -(-rows // 8)), (step // 8, ld // 8, 1)
            )
        elif epilogue & AUX:
            shape, steps = (batch, cols, rows), (says.get("EPILOGUE_AUX_BATCH_STRIDE", 0), says["EPILOGUE_AUX_LD"], 1)
            kept = array_at(
                says["EPILOGUE_AUX_POINTER"], DTYPES[TYPES[says["EPILOGUE_AUX_DATA_TYPE"]]].np, shape, steps
            )
        if epilogue in (136, 152):
            value = value * np.unpackbits(mask, axis=-1, count=rows, bitorder="little").swapaxes(1, 2)
        elif epilogue in BACKWARD:
            value = value * slope(kept.swapaxes(1, 2).astype("f8"))
        elif epilogue & RELU:
            if epilogue & AUX:
                mask[...] = np.packbits((value >= 0).swapaxes(1, 2), axis=-1, bitorder="little")
            value = np.maximum(value, 0)
        elif epilogue & GELU:
            if epilogue & AUX:
                kept[...] = value.swapaxes(1, 2).astype(kept.dtype)
            value = gelu(value)
        if epilogue in BGRAD:
            bias[...] = value.sum(2).astype(bias.dtype)
        elif epilogue in (BGRADA, BGRADB):
            bias[...] = (x.sum(2) if epilogue == BGRADA else y.sum(1)).astype(bias.dtype)
        return value


def gelu(x: Any) -> Any:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def slope(x: Any) -> Any:
    return np.imag(gelu(x + 1e-30j)) / 1e-30


def epilogue(kind: str, at: int) -> None:
    """The kernel ``epilogue_<kind>``."""
    p = EpilogueArgs.from_address(at)
    dtype, wide = DTYPES[kind].np, np.dtype("f8" if kind == "f64" else "f4")
    shape = (p.batch, p.m, p.n)
    sums = array_at(p.sum, wide, shape, (p.m * p.n, p.n, 1))
    alpha, beta = (array_at(x, wide, (1,), (1,)).astype("f8")[0] for x in (p.alpha, p.beta))
    x = np.zeros(shape) if p.empty else alpha * sums.astype("f8")
    if p.c and beta != 0:
        x = x + beta * array_at(p.c, dtype, shape, (p.c_batch, p.c_row, 1)).astype("f8")
    if p.bias:
        x = x + array_at(p.bias, dtype, (p.batch, 1, p.n), (p.bias_batch, 0, 1)).astype("f8")
    octets = (p.batch, p.m, -(-p.n // 8))
    steps = (p.aux_batch, p.aux_row, 1)
    if p.backward and p.activation == 1:
        x = x * np.unpackbits(array_at(p.aux, np.uint8, octets, steps), axis=-1, count=p.n, bitorder="little")
    elif p.backward:
        x = x * slope(array_at(p.aux, dtype, shape, steps).astype("f8"))
    if p.kept and p.activation == 1:
        array_at(p.kept, np.uint8, octets, steps)[...] = np.packbits(x >= 0, axis=-1, bitorder="little")
    elif p.kept:
        array_at(p.kept, dtype, shape, steps)[...] = x.astype(dtype)
    if not p.backward:
        x = np.maximum(x, 0) if p.activation == 1 else gelu(x) if p.activation == 2 else x
    array_at(p.out, dtype, shape, (p.out_batch, p.out_row, 1))[...] = x.astype(dtype)
    if p.back:
        sums[...] = x


def sums(kind: str, at: int) -> None:
    """The kernel ``sums_<source>_<result>``."""
    source, result = kind.rsplit("_", 1)
    p = SumArgs.from_address(at)
    x = array_at(p.x, DTYPES[source].np, (p.batch, p.count, p.terms), (p.x_batch, p.x_item, p.x_term))
    out = array_at(p.out, DTYPES[result].np, (p.batch, p.count), (p.out_batch, 1))
    out[...] = x.astype("f8").sum(2).astype(out.dtype)
