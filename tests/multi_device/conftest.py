"""Four devices without a GPU."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import callboard as cb
from callboard.core import plugins, registry

DEVICES = 4


@pytest.fixture
async def devices(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[cb.Device]]:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", str(DEVICES))
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(cb.device(f"cpu:{index}")) for index in range(DEVICES)]


@pytest.fixture
def sharing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A CPU whose memory other processes can open, installed: child processes find it by its entry point."""
    info = tmp_path / "sharing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sharing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\nsharing = tests.device.residents.sharing:backend\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[2])])
    plugins.targets.cache_clear()
    yield
    plugins.targets.cache_clear()
