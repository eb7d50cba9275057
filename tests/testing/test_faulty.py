import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from callboard.core import registry
from callboard.core.errors import ContextPoisoned, LibraryError, OutOfMemory
from callboard.kernel.memory import Copy
from callboard.testing.faulty import Fault, FaultyBackend, FaultyDevice, FaultyStream, from_spec
from callboard.testing.session import LibrarySession

Open = Callable[..., FaultyDevice]


@pytest.fixture
def opened() -> Iterator[Open]:
    devices: list[FaultyDevice] = []

    def make(**faults: Any) -> FaultyDevice:
        backend = FaultyBackend("cpu", **faults)
        devices.append(backend.open(backend.devices()[0]))
        return devices[-1]

    yield make
    for device in devices:
        device.close()


def launch(device: FaultyDevice, stream: FaultyStream, fn: Callable[[], object] = lambda: None) -> Any:
    """One op, as a library would launch it."""
    return device.launch("test.op", stream, lambda: stream.inner.run("test", fn))  # type: ignore[attr-defined]


def test_a_spec_makes_the_same_backend_again() -> None:
    backend = FaultyBackend("cpu", seed=3, poison_at=100, once="/tmp/a b&c", drop_waits=True)
    again = from_spec(backend.spec)
    assert again.fault == backend.fault == Fault(seed=3, poison_at=100, once="/tmp/a b&c", drop_waits=True)
    assert again.spec == backend.spec
    assert from_spec("faulty+cpu").fault == Fault()
    assert FaultyBackend("cpu").spec == "faulty+cpu"


def test_the_registry_resolves_specs_and_hosts_find_the_backend_by_the_devices_name() -> None:
    backend, info = registry.resolve("faulty+cpu?poison_at=7")
    assert (info.backend, info.index) == ("faulty+cpu?poison_at=7", 0)
    assert registry.backend(info.backend) is backend
    assert registry.resolve("faulty+cpu:0?poison_at=7")[1] == info
    assert isinstance(backend, FaultyBackend)
    assert (backend.isolation, backend.name) == ("thread", "faulty+cpu?poison_at=7")
    assert info.uuid not in {registry.resolve("cpu")[1].uuid, registry.resolve("faulty+cpu?poison_at=8")[1].uuid}


@pytest.mark.parametrize("spec", ["faulty+cpu?poisn_at=3", "faulty+cpu?poison_at=soon"])
def test_a_spec_with_a_mistake_says_so(spec: str) -> None:
    with pytest.raises(TypeError, match=r"poison|poisn"):
        from_spec(spec)


def test_without_faults_it_is_the_inner_backend() -> None:
    with LibrarySession(FaultyBackend("cpu", seed=1)) as session:
        array = np.arange(6.0).reshape(2, 3)
        np.testing.assert_array_equal(session.get(session.put(array).T), array.T)
        assert session.device.probe() is None
        assert session.device.memory_info()[1] > 0


def test_poison_strikes_behind_the_op_and_stays(opened: Open) -> None:
    device = opened(poison_at=2)
    stream, other = device.stream(), device.stream()
    gate = threading.Event()
    launch(device, stream, gate.wait)
    before = stream.record()
    launch(device, stream)
    behind = stream.record()
    assert not before.query()
    assert device.doomed
    gate.set()
    with pytest.raises(ContextPoisoned, match=r"injected at op 2, test\.op"):
        behind.synchronize()
    for say in (
        before.query,
        stream.query,
        other.record().query,
        other.synchronize,
        lambda: device.allocate(8),
        lambda: launch(device, other),
        lambda: device.read_back(other, 0, 0),
    ):
        with pytest.raises(ContextPoisoned):
            say()
    assert isinstance(device.probe(), ContextPoisoned)


def test_probe_waits_for_the_poison(opened: Open) -> None:
    device = opened(poison_at=1)
    stream = device.stream()
    gate = threading.Event()
    launch(device, stream, gate.wait)
    threading.Timer(0, gate.set).start()
    assert isinstance(device.probe(), ContextPoisoned)


def test_a_poisoned_context_posts_no_semaphore(opened: Open) -> None:
    device = opened(poison_at=1)
    stream = device.stream()
    launch(device, stream)
    assert stream.signal(0)  # the address of no semaphore: posting it would crash


def test_out_of_memory_strikes_the_given_number_of_times(opened: Open) -> None:
    device = opened(oom_at=2, oom=2)
    device.release(device.allocate(1))
    for n in (2, 3):
        with pytest.raises(OutOfMemory, match=f"allocation {n}"):
            device.allocate(1)
    device.release(device.allocate(1))


def test_a_failing_op_leaves_the_next_ones_alone(opened: Open) -> None:
    device = opened(fail_at=1)
    stream = device.stream()
    first, second = launch(device, stream), launch(device, stream)
    stream.synchronize()
    with pytest.raises(LibraryError, match="op 1") as caught:
        first.check(b"")
    assert (caught.value.lib, caught.value.code) == ("faulty", 86)
    second.check(b"")


def test_a_crashing_launch_raises_what_is_no_accel_error(opened: Open) -> None:
    device = opened(crash_at=1)
    stream = device.stream()
    with pytest.raises(RuntimeError, match="op 1"):
        launch(device, stream)
    launch(device, stream)


def test_a_hang_ends_when_it_is_released(opened: Open) -> None:
    device = opened(hang_at=1)
    stream, other = device.stream(), device.stream()
    launch(device, stream)
    event = stream.record()
    other.wait(event)
    behind = other.record()
    assert device.hung.wait(10)
    assert not event.query()
    assert not behind.query()
    device.release_hang()
    event.synchronize()
    behind.synchronize()


def test_closing_releases_a_hang(opened: Open) -> None:
    device = opened(hang_at=1)
    stream = device.stream()
    launch(device, stream)
    stream.close()
    assert device.hung.is_set()


def test_once_is_one_context_of_all(opened: Open, tmp_path: Path) -> None:
    path = str(tmp_path / "struck")
    for struck in (True, False):
        device = opened(poison_at=1, once=path)
        stream = device.stream()
        launch(device, stream)
        assert (device.probe() is not None) == struck


def test_once_holds_for_all_faults_of_the_first_context(opened: Open, tmp_path: Path) -> None:
    device = opened(oom=1, fail_at=1, once=str(tmp_path / "struck"))
    with pytest.raises(OutOfMemory):
        device.allocate(1)
    status = launch(device, device.stream())
    with pytest.raises(LibraryError):
        status.check(b"")


@pytest.mark.parametrize("drop_waits", [False, True])
def test_dropped_waits_show(opened: Open, drop_waits: bool) -> None:
    device = opened(drop_waits=drop_waits)
    first, second = device.stream(), device.stream()
    gate, seen = threading.Event(), []
    launch(device, first, gate.wait)
    launch(device, first, lambda: seen.append("first"))
    second.wait(first.record())
    launch(device, second, lambda: seen.append("second"))
    if drop_waits:
        second.synchronize()
        assert seen == ["second"]
    gate.set()
    first.synchronize()
    second.synchronize()
    assert seen == (["second", "first"] if drop_waits else ["first", "second"])


def test_the_schedule_follows_from_the_seed(opened: Open) -> None:
    def schedule(seed: int) -> list[float]:
        device = opened(seed=seed)
        streams = [device.stream(), device.stream()]
        return [s._random.random() for s in streams for _ in range(5) if s._random]

    assert schedule(1) == schedule(1) != schedule(2)
    assert schedule(1)[:5] != schedule(1)[5:]


def test_exit_ends_the_process() -> None:
    program = (
        "import numpy as np\n"
        "from callboard.testing.session import LibrarySession\n"
        "session = LibrarySession('faulty+cpu?exit_at=1')\n"
        "session.put(np.zeros(3))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=30, check=False, capture_output=True)
    assert done.returncode == 86, done.stderr


def test_a_session_meets_the_faults_of_its_spec() -> None:
    with LibrarySession("faulty+cpu?poison_at=3") as session:
        array = session.put(np.zeros(3))
        session.get(array)
        with pytest.raises(ContextPoisoned):
            session.submit(Copy(src=array, out=array))
