import importlib.metadata
import logging
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from callboard.core import plugins, registry
from callboard.core.backend import AccelBackend, AccelDevice, DeviceInfo
from callboard.core.errors import BackendUnavailable
from callboard.core.library import Library


class Toy(AccelBackend):
    """Devices on paper."""

    name: ClassVar[str] = "toy"
    isolation: ClassVar[str] = "thread"

    def __init__(self, *uuids: str, why: str = "") -> None:
        self.infos = [DeviceInfo("toy", i, uuid, "Toy", 0) for i, uuid in enumerate(uuids)]
        self.why = why

    def devices(self) -> list[DeviceInfo]:
        if self.why:
            raise BackendUnavailable(self.why)
        return self.infos

    def environment(self, info: DeviceInfo) -> Mapping[str, str]:
        return {}

    def libraries(self) -> Mapping[str, type[Library]]:
        return {}

    def preload(self) -> None:
        raise AssertionError("not asked for")

    def open(self, info: DeviceInfo) -> AccelDevice:
        raise AssertionError("not asked for")


Register = Callable[[str, AccelBackend], None]


@pytest.fixture
def register() -> Iterator[Register]:
    undo = []
    yield lambda name, backend: undo.append(registry.register(name, backend))
    for step in reversed(undo):
        step()


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No device of this machine, no requirement, no warning so far."""
    monkeypatch.delenv("CALLBOARD_REQUIRE", raising=False)
    monkeypatch.setattr(registry, "_warned", False)
    monkeypatch.setattr(registry, "_nvidia_device_present", lambda: False)


def test_the_cpu_is_always_there() -> None:
    backend, info = registry.resolve("cpu")
    assert backend is registry.backend("cpu")
    assert (info.backend, info.index, info.uuid) == ("cpu", 0, "CPU-0")
    assert registry.resolve("cpu:0") == registry.resolve("CPU-0") == (backend, info)
    assert {"cpu", "cuda"} <= set(registry.names())


def test_a_registered_backend_goes_before_and_can_be_undone(register: Register) -> None:
    real = registry.backend("cpu")
    toy, other = Toy("T-0"), Toy("T-1")
    undo = registry.register("cpu", toy)
    register("toy", other)
    assert registry.backend("cpu") is toy
    assert registry.resolve("toy")[1].uuid == "T-1"
    assert "toy" in registry.names()
    undo()
    assert registry.backend("cpu") is real


def test_an_index_counts_in_its_backend(register: Register) -> None:
    register("toy", Toy("T-a", "T-b"))
    assert registry.resolve("toy:1")[1].uuid == "T-b"
    assert registry.resolve("toy")[1].uuid == "T-a"
    with pytest.raises(BackendUnavailable, match=r"no device 'toy:2'; there are: toy:0, toy:1"):
        registry.resolve("toy:2")


def test_a_uuid_is_found_in_any_backend(register: Register) -> None:
    toy = Toy("GPU-1b2c", "MIG-7/1/0")
    register("toy", toy)
    register("broken", Toy(why="no driver"))
    assert registry.resolve("MIG-7/1/0") == (toy, toy.infos[1])
    with pytest.raises(BackendUnavailable, match=r"no device is called 'GPU-none'.*broken cannot be used: no driver"):
        registry.resolve("GPU-none")


@pytest.mark.parametrize("spec", ["", "cpu:x", "cpu:-1", ":0"])
def test_a_spec_that_means_nothing_says_what_may_be_said(spec: str) -> None:
    with pytest.raises(BackendUnavailable, match=r"use 'auto', 'cpu', 'cuda', 'cuda:1' or a UUID"):
        registry.resolve(spec)


def test_an_unknown_backend_lists_the_known() -> None:
    with pytest.raises(BackendUnavailable, match=r"no backend 'abacus'; there are .*cpu, cuda"):
        registry.backend("abacus")


# -- auto --------------------------------------------------------------------------------------------------------------


def test_auto_is_cuda_where_it_can_be_used(register: Register) -> None:
    toy = Toy("GPU-0", "GPU-1")
    register("cuda", toy)
    assert registry.resolve("auto") == (toy, toy.infos[0])


def test_auto_is_the_cpu_elsewhere_and_says_nothing(register: Register, caplog: pytest.LogCaptureFixture) -> None:
    for cuda in (Toy(why="no driver"), Toy()):
        register("cuda", cuda)
        assert registry.resolve("auto")[1].backend == "cpu"
    assert caplog.records == []


def test_a_device_that_cannot_be_used_is_one_warning(
    register: Register, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registry, "_nvidia_device_present", lambda: True)
    register("cuda", Toy(why="pip install 'callboard[cuda13]'"))
    for _ in range(3):
        assert registry.resolve("auto")[1].backend == "cpu"
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.WARNING, "callboard.core.registry")
    assert "an NVIDIA device is present" in record.getMessage()
    assert "pip install 'callboard[cuda13]'" in record.getMessage()


def test_a_requirement_binds_auto(register: Register, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_REQUIRE", "cuda")
    register("cuda", Toy(why="no driver"))
    with pytest.raises(BackendUnavailable, match=r"CALLBOARD_REQUIRE=cuda .*: no driver"):
        registry.resolve("auto")
    assert registry.resolve("cpu")[1].backend == "cpu"
    register("cuda", Toy("GPU-0"))
    assert registry.resolve("auto")[1].uuid == "GPU-0"


def test_a_requirement_that_is_not_known_is_refused(register: Register, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_REQUIRE", "gpu")
    register("cuda", Toy("GPU-0"))
    with pytest.raises(ValueError, match="CALLBOARD_REQUIRE is 'gpu'; use 'cuda', or unset it"):
        registry.resolve("auto")


def test_cuda_never_is_another(register: Register) -> None:
    register("cuda", Toy(why="no driver"))
    with pytest.raises(BackendUnavailable, match="no driver"):
        registry.resolve("cuda")


def test_what_counts_as_a_device_that_is_present(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    files = {"/proc/driver/nvidia/gpus": tmp_path / "gpus", "/dev/nvidia0": tmp_path / "nvidia0"}
    monkeypatch.setattr(registry, "Path", lambda name: files[name])
    assert not registry._nvidia_device_present()
    (tmp_path / "nvidia0").touch()
    assert registry._nvidia_device_present()
    (tmp_path / "gpus").mkdir()
    assert not registry._nvidia_device_present(), "the driver is loaded and has no device"
    (tmp_path / "gpus" / "0000:01:00.0").mkdir()
    assert registry._nvidia_device_present()


# -- entry points ------------------------------------------------------------------------------------------------------


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What the installed distributions offer."""
    offered: dict[str, str] = {}

    def entry_points(*, group: str) -> list[importlib.metadata.EntryPoint]:
        assert group == "callboard.backends"
        return [importlib.metadata.EntryPoint(name, value, group) for name, value in offered.items()]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    monkeypatch.setattr(registry, "_found", {})
    plugins.targets.cache_clear()
    yield offered
    plugins.targets.cache_clear()


def test_an_entry_point_is_loaded_when_it_is_asked_for(points: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("toy_backend")
    module.backend = Toy("T-0")
    points["toy"] = "toy_backend:backend"
    assert registry.names() == ["cpu", "cuda", "torch", "toy"]
    monkeypatch.setitem(__import__("sys").modules, "toy_backend", module)
    assert registry.backend("toy") is module.backend
    assert registry.resolve("toy:0")[0] is module.backend


def test_wrappers_that_were_asked_for_are_not_listed() -> None:
    assert registry.backend("faulty+cpu?oom_at=2") is registry.backend("faulty+cpu?oom_at=2")
    assert not [name for name in registry.names() if "+" in name]
    with pytest.raises(BackendUnavailable, match=r"there is no backend 'missing\+cpu'"):
        registry.backend("missing+cpu")


def test_a_source_tree_that_is_not_installed_says_what_it_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: ())
    plugins.targets.cache_clear()
    try:
        assert plugins.targets("callboard.wrappers") == {"faulty": "callboard.testing.faulty:from_spec"}
        assert plugins.targets("callboard.libraries") == {}
    finally:
        plugins.targets.cache_clear()


def test_the_own_backends_are_found_without_entry_points(points: dict[str, str]) -> None:
    assert not points
    assert registry.backend("cpu").name == "cpu"


def test_a_backend_that_cannot_be_imported_is_unavailable_and_tried_again(
    points: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    points["toy"] = "toy_backend_missing:backend"
    for _ in range(2):
        with pytest.raises(BackendUnavailable, match=r"backend 'toy' cannot be imported: No module named") as caught:
            registry.backend("toy")
        assert isinstance(caught.value.__cause__, ImportError)


@pytest.mark.parametrize("name", [None, 0])
def test_a_device_is_named_by_a_text(name: object) -> None:
    with pytest.raises(TypeError, match=f"device {name}: pass a name, 'auto', 'cpu'"):
        registry.resolve(name)  # type: ignore[arg-type]
