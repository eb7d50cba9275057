"""Vectors on disk: they outlive the cache, stay within their bound, and damage is told and costs a computation."""

import asyncio
import logging
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import callboard as cb

DIM = 64


class Model:
    """Vectors of texts, and what was asked."""

    def __init__(self, dim: int = DIM) -> None:
        self.dim, self.texts = dim, list[str]()

    async def embed(self, texts: list[str]) -> Any:
        self.texts += texts
        return np.array([[float(sum(text.encode())), *range(1, self.dim)] for text in texts], "f4")


def cache_on(disk: cb.EmbeddingFile, of: Model, *, model: str = "letters", **options: Any) -> cb.EmbeddingCache:
    return cb.EmbeddingCache(of.embed, model=model, disk=disk, **options)


async def test_vectors_are_there_after_a_restart(tmp_path: Path) -> None:
    texts = [f"text {n}" for n in range(700)]
    with cb.EmbeddingFile(tmp_path / "vectors.db") as disk:
        before = await cache_on(disk, Model()).get_many(texts)
    model = Model()
    with cb.EmbeddingFile(tmp_path / "vectors.db") as disk:
        assert len(disk) == 700
        cache = cache_on(disk, model)
        assert (await cache.get_many([*texts, "new"]))[:700].tolist() == before.tolist()
        assert (await asyncio.gather(cache.get("new"), cache.get("text 1")))[1].tolist() == before[1].tolist()
        assert model.texts == ["new"]
        stats = cache.stats()
        assert (stats.disk_hits, stats.misses, stats.hits, stats.calls) == (700, 1, 2, 1)
        other = Model()
        await cache_on(disk, other, model="other").get("new")
        await cache_on(disk, other, dtype="f16").get("new")
        assert other.texts == ["new", "new"]
        assert len(await cache_on(disk, Model(3)).get("text 1")) == DIM  # the file knows the length
        cache_on(disk, Model(), model="other").clear()
        assert len(disk) == 702
    assert (await cache.get("after the end")).shape == (DIM,)  # the file is closed


async def test_what_is_forgotten_or_too_old_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("callboard.agents.cache.disk.time.time", lambda: now)
    model = Model()
    with cb.EmbeddingFile(tmp_path / "vectors.db") as disk:
        cache = cache_on(disk, model, ttl=10.0)
        await cache.get_many(["a", "b"])
        cache.put("c", np.ones(DIM))
        cache.invalidate("a")
        assert len(disk) == 2
        cache = cache_on(disk, model, ttl=10.0)
        assert (await cache.get_many(["a", "b", "c"]))[2].tolist() == [1.0] * DIM
        assert model.texts == ["a", "b", "a"]
        now = 1011.0
        await cache_on(disk, model, ttl=10.0).get("b")
        assert model.texts == ["a", "b", "a", "b"]


async def test_an_error_is_not_kept(tmp_path: Path) -> None:
    with cb.EmbeddingFile(tmp_path / "vectors.db") as disk:

        async def fails(texts: list[str]) -> Any:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await cb.EmbeddingCache(fails, disk=disk).get("a")
        assert len(disk) == 0


async def test_the_file_stays_within_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    most = 1 << 18
    model = Model(256)
    with cb.EmbeddingFile(path, max_bytes=most) as disk:
        for n in range(0, 2000, 50):
            await cache_on(disk, model).get_many([f"text {n + each}" for each in range(50)])
            await cache_on(disk, Model(256)).get("text 0")  # the one that is used stays
        assert 100 < len(disk) < 300
        kept = Model(256)
        await cache_on(disk, kept).get_many(["text 0", "text 1"])
        assert kept.texts == ["text 1"]
    assert path.stat().st_size < 2 * most
    with pytest.raises(ValueError, match="max_bytes is 4096"):
        cb.EmbeddingFile(path, max_bytes=4096)


@pytest.mark.parametrize("offset", [0, 5000])
async def test_a_damaged_file_is_told_and_begun_anew(
    offset: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "vectors.db"
    texts = [f"text {n}" for n in range(400)]
    with cb.EmbeddingFile(path) as disk:
        await cache_on(disk, Model()).get_many(texts)
    content = bytearray(path.read_bytes())
    content[offset : offset + 60_000] = b"\xff" * 60_000
    path.write_bytes(content)
    model = Model()
    with caplog.at_level(logging.WARNING), cb.EmbeddingFile(path) as disk:
        cache = cache_on(disk, model)
        assert (await cache.get_many(texts)).shape == (400, DIM)
        assert model.texts == texts
        assert (len(disk), disk.damaged) == (400, 1)
    assert "is damaged" in caplog.text
    assert (tmp_path / "vectors.db.damaged").stat().st_size == len(content)


async def test_a_damaged_vector_is_computed_again(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    with cb.EmbeddingFile(path) as disk:
        right = await cache_on(disk, Model()).get("a")
    content = path.read_bytes()
    assert content.count(right.tobytes()) == 1
    path.write_bytes(content.replace(right.tobytes(), bytes(right.nbytes)))
    with cb.EmbeddingFile(path) as disk:
        assert (await cache_on(disk, Model()).get("a")).tolist() == right.tolist()
        assert disk.damaged == 1


async def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE notes (text TEXT)")
    with pytest.raises(ValueError, match="another program"):
        cb.EmbeddingFile(path)
    with pytest.raises(OSError, match="cannot be opened"):
        cb.EmbeddingFile(tmp_path / "nowhere" / "vectors.db")


async def test_a_disk_that_refuses_costs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with cb.EmbeddingFile(tmp_path / "vectors.db") as disk:
        disk._db.execute("PRAGMA max_page_count = 4")
        model = Model()
        texts = [f"text {n}" for n in range(400)]
        assert (await cache_on(disk, model).get_many(texts)).shape == (400, DIM)
        assert len(disk) == 0
    assert "full" in caplog.text
