"""What Numba compiled is kept on disk, and is used again only for the same sources."""

import importlib
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import callboard.realtime

pytest.importorskip("numba")

from callboard.realtime.base.cpu.caching import digest

pytestmark = pytest.mark.timeout(180)

CALLED = """
from callboard.realtime.base.cpu.jit import jit_inlined

@jit_inlined
def more(x):
    return x + {}
"""
CALLER = """
from callboard.realtime.base.cpu.jit import jit
from callboard.realtime.lab_called import more

@jit
def run(x):
    return more(x)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(callboard.realtime, "__path__", [*callboard.realtime.__path__, str(tmp_path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # of files that change within its resolution of time
    (tmp_path / "lab_caller.py").write_text(CALLER)
    (tmp_path / "lab_called.py").write_text(CALLED.format(1))
    return tmp_path


def imported() -> ModuleType:
    """As by a new process."""
    for name in ("lab_caller", "lab_called"):
        sys.modules.pop(f"callboard.realtime.{name}", None)
        vars(callboard.realtime).pop(name, None)
    importlib.invalidate_caches()
    return importlib.import_module("callboard.realtime.lab_caller")


def hits(module: Any) -> int:
    return sum(module.run.stats.cache_hits.values())


def test_code_of_another_file_that_changed_is_not_used(folder: Path) -> None:
    assert imported().run(1) == 2
    again = imported()
    assert (again.run(1), hits(again)) == (2, 1)
    (folder / "lab_called.py").write_text(CALLED.format(5))
    other = imported()
    assert (other.run(1), hits(other)) == (6, 0)


@pytest.mark.parametrize("damaged", ["*.nbc", "*.nbi"])
def test_what_cannot_be_read_is_compiled_again(folder: Path, damaged: str, caplog: pytest.LogCaptureFixture) -> None:
    assert imported().run(1) == 2
    for file in folder.rglob(damaged):
        file.write_bytes(b"")
    again = imported()
    assert (again.run(1), hits(again)) == (2, 0)
    assert "not usable, and made again: EOFError" in caplog.text
    after = imported()
    assert (after.run(1), hits(after)) == (2, 1)


def test_code_for_other_types_is_not_called(folder: Path) -> None:
    """As after two processes that both wrote the first file."""
    module = imported()
    assert (module.run(1), module.run(1.5)) == (2, 2.5)
    whole, broken = sorted(folder.rglob("lab_caller.*.nbc"))
    broken.write_bytes(whole.read_bytes())
    again = imported()
    assert again.run(1.5) == 2.5


def test_without_a_folder_it_is_compiled_in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core import caching

    def refused(self: Any) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refused)
    module = imported()
    assert module.run(1) == 2
    assert module.run.stats.cache_path is None
    assert not [*folder.rglob("*.nbi")]


def test_a_full_disk_costs_the_file_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    module = imported()
    monkeypatch.setattr(pickle, "dump", full)
    assert module.run(1) == 2
    assert "is not kept in" in caplog.text


def test_sources_are_those_that_are_imported() -> None:
    name = "callboard.realtime.hashmap.compiled"
    importlib.import_module(name)
    assert digest(name) == digest(name) != digest("callboard.realtime.base.cpu.vectors")
