"""One kernel with its geometry: checked once against the limits of device and kernel, then launched."""

import ctypes
import struct
from collections.abc import Callable, Sequence
from ctypes import c_char, c_int, c_size_t, c_uint, c_void_p
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.backends.cuda.driver import Driver
from callboard.backends.cuda.launching import LaunchConfig
from callboard.backends.cuda.nvrtc.loading import Loaded
from callboard.backends.cuda.nvrtc.maps import MAP_BYTES, Encoder
from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import DriverError, LibraryError, ShapeError, UnsupportedOp
from callboard.core.op import outputs_of
from callboard.kernel.nvrtc.geometry import PORTABLE_CLUSTER, LaunchSpec
from callboard.kernel.nvrtc.launch import Launched, in_order

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["KernelCall"]

# CUfunction_attribute
MAX_THREADS, STATIC_SHARED, REGISTERS = 0, 1, 4
DYNAMIC_SHARED, NON_PORTABLE_CLUSTER = 8, 14
# CUdevice_attribute
MULTIPROCESSORS, SHARED_OPTIN = 16, 97
# CUlaunchAttributeID
COOPERATIVE, CLUSTER = 2, 4
DEFAULT_SHARED = 48 << 10
"""Bytes that a block has without asking."""
SLOT = 16
"""Bytes of an argument: the largest number, a c128."""
CLUSTERS_FROM = (9, 0)
INVALID_VALUE = 1

FORMATS = {
    "f16": "e14x",
    "f32": "f12x",
    "f64": "d8x",
    "c64": "ff8x",
    "c128": "dd",
    "i8": "b15x",
    "i16": "h14x",
    "i32": "i12x",
    "i64": "q8x",
    "u8": "B15x",
    "u16": "H14x",
    "u32": "I12x",
    "u64": "Q8x",
    "bool": "?15x",
}
NARROW = {1: "B15x", 2: "H14x"}
"""Formats of the bits of types unknown to :mod:`struct`, by size."""


class Dims(ctypes.Structure):
    """``CUlaunchAttributeValue.clusterDim``."""

    _fields_ = (("x", c_uint), ("y", c_uint), ("z", c_uint))


class AttributeValue(ctypes.Union):
    """``CUlaunchAttributeValue``."""

    _fields_ = (("pad", c_char * 64), ("flag", c_int), ("dims", Dims))


class Attribute(ctypes.Structure):
    """``CUlaunchAttribute``."""

    _fields_ = (("id", c_int), ("pad", c_char * 4), ("value", AttributeValue))


class KernelCall:
    """A plan that launches one kernel; enqueues only.

    Args:
        device: The device; its context is current.
        loaded: The kernel; released when the plan is closed.
        op: The message, with placeholders.

    Raises:
        ShapeError: The kernel or the device cannot be launched this way; names the limit.
        LibraryError: The kernel takes other parameters.
        UnsupportedOp: The device has no clusters.
    """

    def __init__(self, device: "CudaDevice", loaded: Loaded, op: Launched) -> None:
        spec = op.spec
        self._loaded = loaded
        self._function = function = loaded.function
        self._driver: Driver = device.driver
        self._spec = spec
        formats, self._convert = _packing(spec)
        self._pack = struct.Struct("<" + "".join(formats)).pack_into
        self._maps = _encoders(self._driver, op)
        count, maps = len(spec.kinds), MAP_BYTES * len(self._maps)
        self._values = ctypes.create_string_buffer(maps + SLOT * count + MAP_BYTES)
        base = -ctypes.addressof(self._values) % MAP_BYTES + ctypes.addressof(self._values)
        self._first = base - ctypes.addressof(self._values) + maps  # of the numbers and addresses, behind the maps
        places = [base + maps + SLOT * at for at in range(count)]
        for number, at in enumerate(self._maps):
            places[at] = base + MAP_BYTES * number
        self._params = (c_void_p * max(count, 1))(*places)
        self._nothing = 0 in spec.geometry.grid
        self._config: LaunchConfig | None = None
        self._attributes: Any = None
        check_parameters(self._driver, function, spec)
        if spec.cooperative or spec.geometry.cluster:
            self._config, self._attributes = _configured(spec)
        if not self._nothing:
            self._check(device)

    def __call__(
        self,
        stream: "CudaStream",
        ins: Sequence[int],
        inouts: Sequence[int],
        outs: Sequence[int] | None,
        numbers: Sequence[Any],
    ) -> None:
        if self._nothing:
            return
        flat: list[Any] = []
        given = in_order(self._spec, ins or (), inouts or (), outs or (), numbers or ())
        for value, convert in zip(given, self._convert, strict=True):
            if convert is None:
                flat.append(value)
            else:
                flat += convert(value)
        self._pack(self._values, self._first, *flat)
        for at, encode in self._maps.items():
            ctypes.memmove(self._params[at], encode(given[at]), MAP_BYTES)  # type: ignore[arg-type]
        if self._config is not None:
            self._config.stream = stream.native
            config = ctypes.addressof(self._config)
            code = self._driver.launch_kernel_ex(config, self._function, self._params, None)
        else:
            geometry = self._spec.geometry
            code = self._driver.launch_kernel(
                self._function, *geometry.grid, *geometry.block, geometry.shared, stream.native, self._params, None
            )
        if code:
            raise self._driver.error(code, f"launch of {self._spec.name}")

    def close(self) -> None:
        """Release the kernel; the stream has passed the last launch."""
        self._loaded.release()

    def _check(self, device: "CudaDevice") -> None:
        """Check the geometry against the limits of the compiled kernel and the device."""
        driver, function, geometry = self._driver, self._function, self._spec.geometry
        name = self._spec.name
        threads = geometry.block[0] * geometry.block[1] * geometry.block[2]
        most = attribute(driver, function, MAX_THREADS)
        if threads > most:
            raise ShapeError(
                f"{name}: block {list(geometry.block)} has {threads} threads; this kernel takes {most}, with "
                f"{attribute(driver, function, REGISTERS)} registers each (max_registers= bounds them)"
            )
        static, room = attribute(driver, function, STATIC_SHARED), device.attribute(SHARED_OPTIN)
        if static + geometry.shared > room:
            raise ShapeError(
                f"{name}: shared is {geometry.shared} bytes in addition to {static} declared by the kernel; "
                f"a block has at most {room}"
            )
        if static + geometry.shared > DEFAULT_SHARED:
            driver.func_set_attribute(function, DYNAMIC_SHARED, room - static)
        if geometry.cluster:
            self._check_cluster(device)
        if self._spec.cooperative:
            active = c_int()
            driver.occupancy_blocks(ctypes.byref(active), function, threads, geometry.shared)
            blocks = geometry.grid[0] * geometry.grid[1] * geometry.grid[2]
            most = active.value * device.attribute(MULTIPROCESSORS)
            if blocks > most:
                raise ShapeError(
                    f"{name}: grid {list(geometry.grid)} has {blocks} blocks; {most} run at once (cooperative)"
                )

    def _check_cluster(self, device: "CudaDevice") -> None:
        cluster = self._spec.geometry.cluster
        if device.info.compute_capability < CLUSTERS_FROM:
            major, minor = device.info.compute_capability
            raise UnsupportedOp(
                f"{self._spec.name}: clusters need compute capability 9.0; the device has {major}.{minor}"
            )
        if cluster[0] * cluster[1] * cluster[2] > PORTABLE_CLUSTER:
            self._driver.func_set_attribute(self._function, NON_PORTABLE_CLUSTER, 1)
        found = c_int()
        assert self._config is not None
        config = ctypes.addressof(self._config)
        try:
            self._driver.occupancy_clusters(ctypes.byref(found), self._function, config)
        except DriverError as e:
            raise ShapeError(f"{self._spec.name}: clusters {list(cluster)} cannot be launched: {e}") from e
        if found.value < 1:
            raise ShapeError(f"{self._spec.name}: no cluster {list(cluster)} of such blocks fits on the device")


def attribute(driver: Driver, function: int, which: int) -> int:
    """A ``CUfunction_attribute``."""
    value = c_int()
    driver.func_attribute(ctypes.byref(value), which, function)
    return value.value


def check_parameters(driver: Driver, function: int, spec: LaunchSpec) -> None:
    """Check the declared parameters against those of the compiled kernel, if the driver reports them.

    Raises:
        LibraryError: Their number or a size differs; names the parameter.
    """
    sizes: list[int] = []
    mapped = dict(spec.maps)
    offset, size = c_size_t(), c_size_t()
    try:
        while len(sizes) <= len(spec.kinds):
            driver.func_param_info(function, len(sizes), ctypes.byref(offset), ctypes.byref(size))
            sizes.append(size.value)
    except UnsupportedOp:
        return
    except DriverError as e:
        if e.code != INVALID_VALUE:  # its answer after the last one
            raise
    if len(sizes) != len(spec.kinds):
        many = f"more than {len(spec.kinds)}" if len(sizes) > len(spec.kinds) else str(len(sizes))
        raise LibraryError(f"{spec.name} takes {many} parameters, {len(spec.kinds)} are declared", "nvrtc")
    for at, (kind, size_here) in enumerate(zip(spec.kinds, sizes, strict=True)):
        wanted = DTYPES[kind].itemsize if kind in DTYPES else MAP_BYTES if at in mapped else ctypes.sizeof(c_void_p)
        if wanted != size_here:
            name = spec.names[at] if at < len(spec.names) and spec.names[at] else f"parameter {at}"
            raise LibraryError(
                f"{spec.name}: {name} is declared {kind}, {wanted} bytes; the kernel takes {size_here}", "nvrtc"
            )


Convert = Callable[[Any], Sequence[Any]]


def _packing(spec: LaunchSpec) -> tuple[list[str], list[Convert | None]]:
    """The format of each argument's slot, and the function that makes its values; None: one value unchanged."""
    formats: list[str] = []
    convert: list[Convert | None] = []
    for kind in spec.kinds:
        dtype = DTYPES.get(kind)
        if dtype is None:
            formats.append("Q8x")
            convert.append(None)
        elif dtype.name in FORMATS:
            formats.append(FORMATS[dtype.name])
            convert.append((lambda value: (value.real, value.imag)) if dtype.is_complex else None)
        else:
            formats.append(NARROW[dtype.itemsize])
            convert.append(_bits_of(dtype))
    return formats, convert


def _encoders(driver: Driver, op: Launched) -> dict[int, Encoder]:
    """Encoders of the tensor maps, by position of the parameter."""
    if not op.spec.maps:
        return {}
    outs = outputs_of(op).values() if op.outs is None else (out.layout for out in op.outs)
    given = in_order(op.spec, [a.layout for a in op.ins], [a.layout for a in op.inouts], list(outs), op.numbers)
    return {at: Encoder(driver, given[at], one) for at, one in op.spec.maps}


def _bits_of(dtype: DType) -> Convert:
    bits = np.dtype(f"u{dtype.itemsize}")
    return lambda value: (int(np.asarray(value, dtype.np).view(bits)),)


def _configured(spec: LaunchSpec) -> tuple[LaunchConfig, Any]:
    """Return the arguments of ``cuLaunchKernelEx``, and the attributes they point to."""
    geometry = spec.geometry
    attributes = (Attribute * 2)()
    count = 0
    if geometry.cluster:
        attributes[count].id = CLUSTER
        attributes[count].value.dims = Dims(*geometry.cluster)
        count += 1
    if spec.cooperative:
        attributes[count].id = COOPERATIVE
        attributes[count].value.flag = 1
        count += 1
    config = LaunchConfig((c_uint * 3)(*geometry.grid), (c_uint * 3)(*geometry.block), geometry.shared)
    config.attributes, config.count = ctypes.addressof(attributes), count
    return config, attributes
