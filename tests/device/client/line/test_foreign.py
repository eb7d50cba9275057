"""Objects whose own methods fail: the caller gets the error, and the device stays as it was."""

import datetime as dt
import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.device.protocol.residents.foreign import device_memory


class Exporter:
    """An object with ``__dlpack__`` that gives or raises what it is told to."""

    def __init__(self, capsule: Any, device: Any = (1, 0)) -> None:
        self.capsule = capsule
        self.device = device

    def __dlpack_device__(self) -> Any:
        if isinstance(self.device, BaseException):
            raise self.device
        return self.device

    def __dlpack__(self, **_: Any) -> Any:
        if isinstance(self.capsule, BaseException):
            raise self.capsule
        return self.capsule


class Interface:
    """An object with ``__cuda_array_interface__``."""

    def __init__(self, **changes: Any) -> None:
        told = {"version": 3, "shape": (3,), "typestr": "<f4", "data": (4096, False)}
        self.__cuda_array_interface__ = told | changes


class HostArray:
    """An object with ``__array__``."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


class Untold(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Moody:
    """Every attribute raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def used() -> Any:
    capsule = np.zeros(3).__dlpack__()
    np.from_dlpack(Exporter(capsule))
    return capsule


EXPORTERS: dict[str, Callable[[], Any]] = {
    **{
        f"raises {kind.__name__}": lambda kind=kind: Exporter(kind("r"))
        for kind in (RuntimeError, BufferError, ValueError, TypeError, StopIteration, Untold)
    },
    "device raises": lambda: Exporter(None, RuntimeError("d")),
    "device is None": lambda: Exporter(None, None),
    "device is a text": lambda: Exporter(None, "ab"),
    "another device": lambda: Exporter(None, (2, 0)),
    "no capsule": lambda: Exporter(3),
    "a used capsule": lambda: Exporter(used()),
    "another capsule": lambda: Exporter(dt.datetime_CAPI),  # type: ignore[attr-defined]
    "all attributes raise": Moody,
    "a class": lambda: Exporter,
}
HOST: dict[str, Callable[[], Any]] = {
    "array raises": lambda: HostArray(RuntimeError("a")),
    "array raises ValueError": lambda: HostArray(ValueError("a")),
    "array is a text": lambda: HostArray("abc"),
    "objects": lambda: np.array([1, None], object),
    "records": lambda: np.zeros(3, [("a", "f4")]),
    "dates": lambda: np.zeros(3, "M8[s]"),
    "texts": lambda: np.array(["a"]),
    "nothing": object,
}
ADOPTED: dict[str, Callable[[], Any]] = {
    "swapped": lambda: np.zeros(3, ">f4"),
    "read-only": lambda: np.broadcast_to(np.zeros(3), (2, 3)),
    "not aligned": lambda: np.zeros(13, "u1")[1:].view("f4"),
}
ENTRANCES: dict[str, Callable[[cb.sync.Device, Any], Any]] = {
    "adopt": lambda dev, x: dev.adopt(x),
    "put": lambda dev, x: dev.put(x),
    "put, converted": lambda dev, x: dev.put(x, dtype="f4"),
    "array": lambda dev, x: dev.array(x, "f4"),
    "asarray": lambda dev, x: dev.xp.asarray(x),
    "from_dlpack": lambda dev, x: dev.xp.from_dlpack(x),
    "assigned": lambda dev, x: dev.zeros(3).__setitem__(slice(None), x),
}


@pytest.fixture(scope="module", params=["thread", "process"])
def dev(request: pytest.FixtureRequest) -> Iterator[cb.sync.Device]:
    with cb.sync.device("cpu", isolation=request.param, standby=None) as device:
        device.copy(device.put(np.ones(3))).get()  # its stream and its arena are kept
        yield device


@pytest.fixture
def untouched(dev: cb.sync.Device) -> Iterator[cb.sync.Device]:
    generation, before = dev.generation, dev.stats().buffers
    yield dev
    assert dev.put(np.ones(3)).get().sum() == 3
    gc.collect()
    assert (dev.generation, dev.stats().buffers) == (generation, before)


@pytest.mark.few(6)
@pytest.mark.parametrize("what", [*EXPORTERS, *HOST])
def test_a_failing_object_is_the_callers_error(untouched: cb.sync.Device, what: str) -> None:
    for entrance, enter in ENTRANCES.items():
        try:
            with pytest.raises(TypeError):
                enter(untouched, (EXPORTERS | HOST)[what]())
        except BaseException as e:
            e.add_note(entrance)
            raise


@pytest.mark.few(2)
@pytest.mark.parametrize("what", ADOPTED)
def test_what_put_copies_is_not_adopted(untouched: cb.sync.Device, what: str) -> None:
    array = ADOPTED[what]()
    with pytest.raises(TypeError, match=r"dev\.put"):
        untouched.adopt(array)
    np.testing.assert_array_equal(untouched.put(array).get(), array)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("entrance", ["adopt", "from_dlpack", "put"])
def test_what_ends_the_program_passes_through(
    untouched: cb.sync.Device, kind: type[BaseException], entrance: str
) -> None:
    error = kind()
    thing = HostArray(error) if entrance == "put" else Exporter(error)
    if entrance == "adopt" and untouched.isolation == "process":
        thing = Exporter(None, error)
        entrance = "put"
    with pytest.raises(kind):
        ENTRANCES[entrance](untouched, thing)


@pytest.mark.parametrize(
    "thing",
    [
        Interface(typestr="<f3"),
        Interface(typestr=">f4"),
        Interface(typestr="|O8"),
        Interface(shape=None),
        Interface(shape=(-1,)),
        Interface(shape=(2**62, 2**62)),
        Interface(data=None),
        Interface(data=(0, False)),
        Interface(data=(4097, False)),
        Interface(data=(4096, True)),
        Interface(strides=(3,)),
        Interface(strides=(4, 4)),
        Interface(mask=object()),
        Interface(stream=0),
        Interface(stream="s"),
        Exporter(RuntimeError("r"), (2, 0)),
        Exporter(3, (2, 0)),
        Exporter(None, RuntimeError("d")),
        np.zeros(3),
        object(),
        Moody,
    ],
)
def test_what_cannot_be_memory_of_a_gpu(thing: Any) -> None:
    thing = thing() if thing is Moody else thing
    with pytest.raises(TypeError, match="adopt: "):
        device_memory("adopt", thing)


def test_an_interface_is_read() -> None:
    found = device_memory("adopt", Interface(strides=(8,), stream=7))
    assert (found.address, found.layout.shape, found.layout.strides, found.follow) == (4096, (3,), (2,), 7)


class Model(cb.ResidentActor):
    """Values whose methods fail, in arguments and results."""

    def give(self, which: str) -> Any:
        return EXPORTERS[which]() if which in EXPORTERS else HOST[which]()

    def adopt(self, which: str) -> Any:
        return self.ctx.ref(self.give(which))

    def bring(self, which: str) -> Any:
        return self.ctx.host(self.give(which))

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = ctx


def test_values_of_resident_actors(untouched: cb.sync.Device) -> None:
    model = untouched.actor_of(cb.Props(Model), wait=True)
    for which, make in EXPORTERS.items():
        for method in (Model.give, Model.adopt, Model.bring):
            with pytest.raises(TypeError):
                model.call(method, which)
        with pytest.raises(TypeError):
            model.call(Model.give, make())
    assert model.restarts == 0
    model.stop()
