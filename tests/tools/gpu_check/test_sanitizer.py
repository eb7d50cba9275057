"""The sanitizer section: its runs, and the evaluation of the logs."""

from pathlib import Path
from typing import Any

import pytest

from gpu_check import __main__ as program
from gpu_check import sanitizer
from gpu_check.groups import ROOT
from gpu_check.sanitizer import FAILED, TOOLS, findings, sanitizer_section

CLEAN = """========= COMPUTE-SANITIZER
========= ERROR SUMMARY: 0 errors
"""
FOUND = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at fill_4+0x1a0 in kernels.cu:12
=========     by thread (96,0,0) in block (0,0,0)
=========     Address 0x7f2e00000200 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame:  [0x331c9f] in libcuda.so.1
=========
========= Invalid __global__ write of size 4 bytes
=========     at fill_4+0x1a0 in kernels.cu:12
=========     by thread (97,0,0) in block (0,0,0)
========= Uninitialized __global__ memory read of size 8 bytes
=========     at void csrmv<double>(int)
========= ERROR SUMMARY: 3 errors
"""


def test_a_log_is_counted_by_kind_and_kernel() -> None:
    assert findings(CLEAN) == {"errors": 0, "found": {}}
    assert findings(FOUND) == {
        "errors": 3,
        "found": {
            "Invalid __global__ write of size 4 bytes at fill_4": 2,
            "Uninitialized __global__ memory read of size 8 bytes at void csrmv<double>(int)": 1,
        },
    }
    assert findings("========= COMPUTE-SANITIZER\n")["errors"] is None, "it was cut short"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer.shutil, "which", lambda name, path=None: f"/bin/{name}")


def test_each_tool_runs_over_the_suites_of_our_own_kernels(installed: None) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], seconds: float, environment: dict[str, str]) -> dict[str, Any]:
        commands.append(command)
        Path(command[command.index("--log-file") + 1]).write_text(FOUND if len(commands) == 1 else CLEAN)
        return {"code": FAILED if len(commands) == 1 else 0, "seconds": 1.0, "timed_out": False}

    found = dict(sanitizer_section(60.0, ["-x"], run, {}, ROOT))
    assert list(found) == list(TOOLS)
    assert [found[tool]["errors"] for tool in TOOLS] == [3, 0]
    for tool, command in zip(TOOLS, commands, strict=True):
        assert command[:3] == ["/bin/compute-sanitizer", "--tool", tool]
        files = [part for part in command if part.startswith("tests/")]
        assert "tests/conformance/test_memory.py" in files
        assert "tests/conformance/test_fft.py" not in files
        assert all((ROOT / file).is_file() for file in files)


def test_without_the_tool_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer.shutil, "which", lambda name, path=None: None)
    with pytest.raises(RuntimeError, match="comes with the CUDA toolkit"):
        list(sanitizer_section(1.0, [], lambda *_: {}, {}, ROOT))


@pytest.mark.parametrize("errors, good", [(0, 0), (2, 1)])
def test_it_runs_where_it_is_asked_for(errors: int, good: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"ended": {"code": 0, "seconds": 1.0, "timed_out": False}, "errors": errors, "found": {}}
    found = {"at": "2026-11-20T10:00:00Z", "backend": "cuda", "device": "NVIDIA H200", "doctor": {"backends": []}}
    monkeypatch.setattr(program, "probe", lambda device, commit, tree: found)
    monkeypatch.setattr(program, "sanitized", lambda seconds: iter([("memcheck", one)]))
    options = ["--only", "sanitizer", "--summaries", str(tmp_path / "s"), "--records", str(tmp_path / "r")]
    assert program.main(options) == good
    assert f'"errors": {errors}' in (tmp_path / "s" / "2026-11-20-h200.json").read_text()
    assert "sanitizer" not in program.SECTIONS
