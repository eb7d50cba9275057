"""The local socket: a snapshot for processes of the same user, nothing for others."""

import asyncio
import os
from pathlib import Path

import pytest

import callboard as cb
from callboard.cli.top.source import Source, found
from callboard.telemetry.local import places

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Unix sockets")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "callboard"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_a_snapshot_of_each_observed_system(own_folder: Path) -> None:
    async with cb.System("one") as one, cb.System("two") as two:
        for system in (one, two, one):
            cb.observe(system)
        paths = found(os.getpid())
        assert len(paths) == 2

        with Source(*paths) as source:
            assert [(await asyncio.to_thread(source.snapshot)).system for _ in range(2)] == ["one, two"] * 2
            async with cb.System("three") as three:
                cb.observe(three)
                assert (await asyncio.to_thread(source.snapshot)).system == "one, two, three"
            assert (await asyncio.to_thread(source.snapshot)).system == "one, two"
        assert {mode(path) for path in paths} == {0o600}
        assert mode(own_folder) == 0o700
        with pytest.raises(LookupError, match="process 1 is not observed"):
            found(1)
    with pytest.raises(LookupError, match="no application of this user is observed"):
        found(None)


async def test_a_folder_of_others_is_not_used(own_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkdir(own_folder)
    os.chmod(own_folder, 0o755)
    caplog.set_level("INFO", "callboard.telemetry")
    async with cb.System("shop") as system:
        cb.observe(system)
        assert "is not a folder that only this user can enter" in caplog.text
        assert os.listdir(own_folder) == []
    with pytest.raises(PermissionError, match="set its mode to 0700"):
        places.sockets()


async def test_what_a_dead_process_left_is_removed(own_folder: Path) -> None:
    left = places.made_folder() / f"{2**22 - 1}-1.sock"
    left.touch()
    async with cb.System("shop") as system:
        cb.observe(system)  # which removes it, too
        assert not left.exists()
    left.touch()
    assert places.sockets() == []
    assert not left.exists()


def test_an_application_that_has_died_meanwhile_is_named(own_folder: Path) -> None:
    left = places.made_folder() / f"{os.getpid()}-1.sock"
    left.touch()
    with pytest.raises(OSError, match=f"^process {os.getpid()} does not listen any more: the application has ended$"):
        Source(left)


async def test_an_application_that_ends_is_told() -> None:
    async with cb.System("shop") as system:
        cb.observe(system)
        source = Source(found(os.getpid())[0])
        await asyncio.to_thread(source.snapshot)
    with source, pytest.raises(OSError):
        source.snapshot()
