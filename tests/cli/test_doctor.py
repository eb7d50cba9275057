import asyncio
import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.cli import main
from callboard.cli.doctor import devices, machine
from callboard.cli.doctor.command import report
from callboard.cli.doctor.findings import BackendFinding, DeviceFinding, Finding, Findings, LibraryFinding
from callboard.core import registry
from callboard.core.errors import BackendUnavailable


def findings(*backends: BackendFinding) -> Findings:
    return Findings(platform=machine.system(), packages={}, driver=Finding(name="d"), backends=[*backends], limits=[])


def device(error: str | None = None, library: str | None = None) -> BackendFinding:
    libraries = [LibraryFinding(name="blas", error=library)]
    return BackendFinding(name="x", devices=[DeviceFinding(name="x:0", uuid="X", error=error, libraries=libraries)])


def test_cpu_is_usable_in_a_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--isolation", "process", "--require", "cpu"]) == 0
    text = capsys.readouterr().out
    assert "ok  cpu:0" in text
    assert "isolation process" in text
    assert "    ok  blas" in text


def test_a_library_says_by_what_it_works(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(registry.backend("cpu").libraries()["tensor"], "detail", "by an abacus")
    assert main(["doctor", "--isolation", "thread", "--require", "cpu"]) == 0
    assert "    ok  tensor: by an abacus" in capsys.readouterr().out


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
def test_cuda_is_usable_and_its_driver_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--require", "cuda"]) == 0
    text = capsys.readouterr().out
    assert "ok  NVIDIA driver" in text
    assert "ok  cuda:0" in text


def test_json_is_the_findings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {backend["name"] for backend in found["backends"]} >= {"cpu", "cuda"}


def test_what_is_required_and_missing_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unavailable(name: str) -> Any:
        raise BackendUnavailable(f"no {name}; pip install it")

    monkeypatch.setattr(registry, "backend", unavailable)
    monkeypatch.setattr(devices, "has_nvidia_gpu", lambda: True)
    assert main(["doctor", "--require", "cuda"]) == 1
    text = capsys.readouterr().out
    assert "NO  cuda: no cuda; pip install it" in text
    assert "required and not usable: cuda" in text


@pytest.mark.parametrize(
    "backend, usable",
    [
        (device(), True),
        (device(error="gone"), False),
        (device(library="no cublas"), False),
        (BackendFinding(name="x", error="no driver"), False),
        (BackendFinding(name="y"), False),
    ],
)
def test_usable_is_a_device_whose_libraries_all_work(backend: BackendFinding, usable: bool) -> None:
    assert findings(backend).usable("x") is usable


def test_a_broken_library_is_reported_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(device: Any) -> None:
        raise ValueError("a product came back as 3")

    monkeypatch.setitem(devices.PROBES, "blas", broken)
    found = asyncio.run(devices.backend_findings())
    assert "    NO  blas: ValueError: a product came back as 3" in list(report(findings(*found)))
    assert not findings(*found).usable("cpu")


def test_every_library_of_the_cpu_is_tried() -> None:
    assert set(registry.backend("cpu").libraries()) <= set(devices.PROBES)


@pytest.mark.slow
def test_libcuda_is_not_loaded_here() -> None:
    code = (
        "import sys; loaded = []\n"
        "sys.addaudithook(lambda e, a: loaded.append(str(a[0])) if e == 'ctypes.dlopen' else None)\n"
        "from callboard.cli import main; main(['doctor'])\n"
        "sys.exit(any('libcuda' in name for name in loaded))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=50, check=False).returncode == 0


def absent(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


def test_no_driver_beside_a_gpu_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", absent)
    monkeypatch.setattr(machine, "has_nvidia_gpu", lambda: True)
    found = machine.driver()
    assert found.error is not None
    assert "install the driver" in found.error
    assert found.needed


def test_neither_driver_nor_gpu_is_no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(name: str) -> Any:
        raise BackendUnavailable(f"no {name}; pip install it")

    for module in (machine, devices):
        monkeypatch.setattr(module, "has_nvidia_gpu", lambda: False)
    monkeypatch.setattr(ctypes, "CDLL", absent)
    monkeypatch.setattr(registry, "backend", unavailable)
    monkeypatch.setattr(registry, "names", lambda: ["cpu", "cuda"])
    found = findings(*asyncio.run(devices.backend_findings()))
    lines = list(report(msgspec.structs.replace(found, driver=machine.driver())))
    assert "--  NVIDIA driver: not there, and no NVIDIA GPU either" in lines
    assert "--  cuda: no cuda; pip install it" in lines
    assert "NO  cpu: no cpu; pip install it" in lines
    assert not found.usable("cuda")


def test_a_gpu_is_known_by_its_vendor(tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists():
        assert machine.has_nvidia_gpu(tmp_path)
        return
    (tmp_path / "0000:00:00.0").mkdir()
    (tmp_path / "0000:00:00.0" / "vendor").write_text("0x8086\n")
    assert not machine.has_nvidia_gpu(tmp_path)
    (tmp_path / "0000:00:01.0").mkdir()
    (tmp_path / "0000:00:01.0" / "vendor").write_text("0x10de\n")
    assert machine.has_nvidia_gpu(tmp_path)
    assert not machine.has_nvidia_gpu(tmp_path / "nothing")


def test_unknown_variables_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CALLBOARD_ISOLATOIN", "process")
    monkeypatch.setenv("CALLBOARD_COLOUR_OF_THE_SKY", "blue")
    monkeypatch.setattr(registry, "names", list)
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "NO  CALLBOARD_ISOLATOIN: unknown; is CALLBOARD_ISOLATION meant?" in lines
    assert "NO  CALLBOARD_COLOUR_OF_THE_SKY: unknown; docs/configuration.md lists all" in lines


@pytest.mark.parametrize("gpu", [False, True])
def test_the_address_space_is_for_machines_with_a_gpu(gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (1 << 30, 1 << 30))
    monkeypatch.setattr(machine, "has_nvidia_gpu", lambda: gpu)
    found = next(finding for finding in machine.limits() if finding.name.startswith("address space"))
    assert (found.error is not None) == gpu


def test_a_missing_memfd_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str) -> int:
        raise OSError("Function not implemented")

    monkeypatch.setattr(os, "memfd_create", refused)
    found = next(finding for finding in machine.limits() if finding.name.startswith("memfd"))
    assert found.error is not None
    assert 'isolation="thread"' in found.error
