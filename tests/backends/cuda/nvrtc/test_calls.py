"""Launches of the user's kernels on a driver that checks what it is given."""

import ctypes
from collections.abc import Callable
from typing import Any

import kernels_lab as lab
import numpy as np
import pytest
from host_backend import HostSession
from host_driver import HostDriver, array_at

from callboard.backends.cuda.launching import LaunchConfig
from callboard.backends.cuda.nvrtc.loading import Loaded
from callboard.backends.cuda.nvrtc.programs import Programs
from callboard.core.errors import LibraryError, ShapeError, UnsupportedOp
from callboard.kernel.nvrtc import Compile, Compiled, Geometry, Inspect, Launch, LaunchSpec, Source
from callboard.kernel.nvrtc.compile import inspected


class Gpu:
    """What the driver is asked about kernels, and the launches that it was given.

    Attributes:
        sizes: Of the parameters of every kernel; None: the driver is too old to tell.
        attributes: ``CUfunction_attribute`` by number.
        set: Attributes that were set.
        run: Called with the parameters of a launch.
        launches: Grid, block and shared bytes of each, and the attributes of extended ones.
    """

    def __init__(self, driver: HostDriver) -> None:
        self.driver = driver
        self.sizes: list[int] | None = None
        self.attributes = {0: 1024, 1: 0, 2: 0, 3: 8, 4: 32, 5: 90, 6: 90, 8: 48 << 10}
        self.set: dict[int, int] = {}
        self.run: Callable[[Any], None] = lambda params: None
        self.launches: list[Any] = []
        self.clusters = 1
        self.released = 0
        self.used = 0

    def loaded(self) -> Any:
        """A kernel; the test's end counts who released it."""
        self.used += 1
        gpu = self

        class Kernel(Loaded):
            def release(self) -> None:
                gpu.released += 1

        return Kernel(None, None, 0, 0xF)  # type: ignore[arg-type]

    def func_attribute(self, out: Any, which: int, function: int) -> None:
        out._obj.value = self.attributes[which]

    def func_set_attribute(self, function: int, which: int, value: int) -> None:
        self.set[which] = value

    def func_param_info(self, function: int, at: int, offset: Any, size: Any) -> None:
        if self.sizes is None:
            raise UnsupportedOp("the NVIDIA driver has no cuFuncGetParamInfo")
        self.driver.check(at >= len(self.sizes), "cuFuncGetParamInfo")
        size._obj.value = self.sizes[at]

    def occupancy_blocks(self, out: Any, function: int, threads: int, shared: int) -> None:
        out._obj.value = 2048 // threads

    def occupancy_block_size(self, grid: Any, block: Any, function: int, of: Any, shared: int, limit: int) -> None:
        grid._obj.value, block._obj.value = 264, 1024

    def occupancy_clusters(self, out: Any, function: int, config: int) -> None:
        out._obj.value = self.clusters

    def launch_kernel(self, function: int, *arguments: Any) -> int:
        self.launches.append((arguments[:3], arguments[3:6], arguments[6]))
        self.run(arguments[8])
        return self.driver._enqueued("kernel", arguments[7])

    def launch_kernel_ex(self, config: int, function: int, params: Any, extra: Any) -> int:
        given = LaunchConfig.from_address(config)
        attributes = {}
        for at in range(given.count):
            raw = ctypes.string_at(given.attributes + 72 * at, 72)  # CUlaunchAttribute
            attributes[int.from_bytes(raw[:4], "little")] = np.frombuffer(raw[8:20], "u4").tolist()
        self.launches.append((tuple(given.grid), tuple(given.block), given.shared, attributes))
        self.run(params)
        return self.driver._enqueued("kernel", given.stream)


@pytest.fixture
def gpu(driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu(driver)
    for name in dir(Gpu):
        if not name.startswith("_") and name != "loaded":
            monkeypatch.setattr(driver, name, getattr(made, name), raising=False)
    monkeypatch.setattr(
        driver,
        "device_attribute",
        lambda out, which, device: setattr(out._obj, "value", {75: 9, 76: 0, 16: 132, 97: 227 << 10, 39: 2048}[which]),
    )
    monkeypatch.setattr(Programs, "function", lambda self, source, name: made.loaded())
    monkeypatch.setattr(
        Programs, "compiled", lambda self, source, name="", form="binary": Compiled(b"image", form, {"f": "_f"}, "log")
    )
    return made


@pytest.fixture
def session(driver: HostDriver, gpu: Gpu) -> Any:
    with HostSession(driver) as opened:
        yield opened
    assert gpu.released == gpu.used  # also of what was refused


def spec(*kinds: str, **fields: Any) -> LaunchSpec:
    given = {"grid": (1, 1, 1), "block": (32, 1, 1), **fields}
    cooperative = given.pop("cooperative", False)
    return LaunchSpec("f", kinds, Geometry(**given), cooperative=cooperative)


def launch(session: Any, made: LaunchSpec, **fields: Any) -> Any:
    return session.submit(Launch(spec=made, source=Source("text"), **fields))


def test_arguments_are_where_the_kernel_looks_for_them(session: Any, gpu: Gpu) -> None:
    seen: list[Any] = []

    def run(params: Any) -> None:
        x, y, n = (ctypes.c_uint64.from_address(params[at]).value for at in (0, 1, 3))
        alpha = ctypes.c_float.from_address(params[2]).value
        seen.append((alpha, n & 0xFFFFFFFF))
        array_at(y, "f4", (5,), (1,))[...] = alpha * array_at(x, "f4", (5,), (1,))

    gpu.run = run
    x = np.arange(5, dtype="f4")
    found = session.submit(lab.scaled.op(session.put(x), 2.5))
    assert seen == [(2.5, 5)] * len(seen)
    np.testing.assert_array_equal(session.get(found[0]), 2.5 * x)
    assert gpu.launches[0] == ((1, 1, 1), (256, 1, 1), 0)


@pytest.mark.parametrize("dtype", [*lab.NUMBERS, "f16", "bf16", "f8_e4m3"])
def test_numbers_have_the_bits_of_their_dtype(session: Any, gpu: Gpu, dtype: str) -> None:
    from callboard.core.dtype import DTYPES

    kind = DTYPES[dtype]
    value = lab.NUMBERS.get(dtype, ("", 1.5))[1]
    bits: list[bytes] = []
    gpu.run = lambda params: bits.append(ctypes.string_at(params[1], kind.itemsize))
    launch(session, spec("i8", dtype, "i64"), numbers=(1, value, -1))
    assert set(bits) == {np.array(value).astype(kind.np).tobytes()}


def test_clusters_and_cooperation_are_attributes_of_the_launch(session: Any, gpu: Gpu) -> None:
    launch(session, spec(grid=(12, 1, 1), cluster=(4, 1, 1), shared=100 << 10))
    assert gpu.launches[0] == ((12, 1, 1), (32, 1, 1), 100 << 10, {4: [4, 1, 1]})
    assert gpu.set == {8: 227 << 10}
    launch(session, spec(grid=(16, 1, 1), cluster=(16, 1, 1)))
    assert gpu.set[14] == 1  # more than every GPU takes
    launch(session, spec(grid=(2, 1, 1), cooperative=True))
    assert list(gpu.launches[-1][3]) == [2]


def test_an_empty_grid_launches_nothing(session: Any, gpu: Gpu) -> None:
    launch(session, spec(grid=(0, 1, 1)))
    assert gpu.launches == []


REFUSED = {
    "more threads than the kernel takes": (
        {"block": (1024, 1, 1)},
        {0: 512},
        ShapeError,
        "1024 threads; this kernel takes 512",
    ),
    "more shared memory than there is": ({"shared": 220 << 10}, {1: 10 << 10}, ShapeError, "at most 232448"),
    "more blocks than run at once": ({"grid": (9000, 1, 1), "cooperative": True}, {}, ShapeError, "8448 run at once"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_launched_is_refused_before(session: Any, gpu: Gpu, case: str) -> None:
    fields, attributes, error, says = REFUSED[case]
    gpu.attributes |= attributes
    with pytest.raises(error, match=says):
        launch(session, spec(**fields))
    assert gpu.launches == []


def test_clusters_that_do_not_fit_are_refused_before(session: Any, gpu: Gpu) -> None:
    gpu.clusters = 0
    with pytest.raises(ShapeError, match=r"no cluster \[2, 1, 1\] of such blocks fits"):
        launch(session, spec(grid=(2, 1, 1), cluster=(2, 1, 1)))


def test_other_parameters_than_the_kernels_are_refused_by_name(session: Any, gpu: Gpu) -> None:
    gpu.sizes = [8, 8, 8, 4]
    with pytest.raises(LibraryError, match="alpha is declared f32, 4 bytes; the kernel takes 8"):
        session.submit(lab.scaled.op(session.put(np.ones(3, "f4")), 1.0))
    gpu.sizes = [8, 8]
    with pytest.raises(LibraryError, match="f takes more than 1 parameters, 1 are declared"):
        launch(session, spec("i64"), numbers=(1,))
    with pytest.raises(LibraryError, match="f takes 2 parameters, 3 are declared"):
        launch(session, spec("i64", "i64", "i64"), numbers=(1, 2, 3))
    assert gpu.launches == []


def test_what_was_compiled_and_what_a_kernel_needs(session: Any) -> None:
    import msgspec

    found = session.get(session.submit(Compile(source=Source("text"), form="ptx")))
    assert msgspec.msgpack.decode(found.tobytes(), type=Compiled) == Compiled(b"image", "ptx", {"f": "_f"}, "log")
    numbers = session.get(session.submit(Inspect(source=Source("text"), name="f", threads=512))).tolist()
    attributes, occupancy = inspected(numbers)
    assert (attributes.registers, attributes.local_bytes, attributes.max_dynamic_shared_bytes) == (32, 8, 48 << 10)
    assert occupancy == (4, 132, 1.0, 1024, 264)
