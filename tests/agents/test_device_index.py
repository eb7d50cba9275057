"""``DeviceVectorIndex``: the same results as on the host, by every metric, and through the loss of the device."""

import asyncio
import os
import signal
from typing import Any

import numpy as np
import pytest
from tests.agents.index_lab import vectors

import callboard as cb
from callboard.agents.index import device as of_device

LIMIT = 30.0


async def same(index: cb.DeviceVectorIndex, queries: Any, k: int = 10, where: Any = None) -> bool:
    found, want = await index.search(queries, k, where=where), await index.host.search(queries, k, where=where)
    return np.array_equal(found.ids, want.ids) and np.allclose(found.scores, want.scores, atol=2e-3)


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
@pytest.mark.parametrize("blocks", [1, 3])
async def test_results_are_those_of_the_host(metric: Any, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_device, "BLOCK", -(-600 // blocks))
    monkeypatch.setattr(of_device, "QUERIES", 3)
    rows, queries = vectors(600), vectors(7, seed=1)
    async with cb.device("cpu", isolation="thread") as gpu:
        index = cb.DeviceVectorIndex(gpu, cb.CpuVectorIndex(24, metric=metric, dtype="f32"))
        assert (await index.search(queries)).ids.shape == (7, 0)
        ids = np.random.default_rng(0).permutation(600)
        index.upsert(ids, rows, [{"odd": int(n % 2)} for n in ids])
        assert await same(index, queries)
        assert await same(index, queries[0], 700)
        assert await same(index, queries[:0])
        assert await same(index, queries, 5, {"odd": 1})
        assert await same(index, queries, 5, {"odd": 2})
        copy = index._copy
        index.upsert([3, 700], queries[:2])  # on the host for now
        index.delete(ids[:50].tolist())
        assert await same(index, queries, 20)
        assert await same(index, queries, 20, {"odd": 1})
        assert index._copy is copy
        index.delete(ids[50:400].tolist())
        assert await same(index, queries, 20)
        assert index._copy is not copy


@pytest.mark.parametrize("kind", [int, "{:02}".format])
async def test_equal_scores_are_in_the_order_of_ids(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of texts, too, which are sorted in parts, as rows are sent in parts."""
    monkeypatch.setattr(of_device, "BLOCK", 16)
    monkeypatch.setattr(of_device, "SORTED", 7)
    monkeypatch.setattr(of_device, "SENT", 5 * 2 * 2)
    async with cb.device("cpu", isolation="thread") as gpu:
        index = cb.DeviceVectorIndex(gpu, cb.CpuVectorIndex(2, dtype="f16"))
        index.upsert([*map(kind, np.random.default_rng(0).permutation(50).tolist())], np.ones((50, 2)))
        assert (await index.search([[1, 1]], 40)).ids.tolist() == [[*map(kind, range(40))]]


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
async def test_the_best_groups_hold_the_best_rows(metric: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_device, "BLOCK", 128)
    monkeypatch.setattr(of_device, "GROUP", 4)
    draw = np.random.default_rng(0)
    rows = draw.integers(-1, 2, (300, 3)) + np.array([0.0, 0.0, 4.0])  # most scores occur often
    async with cb.device("cpu", isolation="thread") as gpu:
        index = cb.DeviceVectorIndex(gpu, cb.CpuVectorIndex(3, metric=metric, dtype="f32"))
        index.upsert(draw.permutation(300), rows, [{"odd": int(n % 2)} for n in range(300)])
        for where in (None, {"odd": 1}):
            found = await index.search(rows[:20], 7, where=where)
            want = await index.host.search(rows[:20], 7, where=where)
            assert np.allclose(found.scores, want.scores, atol=1e-6)
            if metric != "cosine":  # the products are exact
                assert np.array_equal(found.ids, want.ids)


@pytest.mark.parametrize("dtype", ["f16", "i8"])
async def test_rows_of_fewer_bytes(dtype: Any) -> None:
    async with cb.device("cpu", isolation="thread") as gpu:
        index = cb.DeviceVectorIndex(gpu, cb.CpuVectorIndex(24, dtype=dtype))
        index.upsert(range(500), vectors(500))
        queries = vectors(20, seed=1)
        found, want = await index.search(queries), await index.host.search(queries)
        assert np.mean([len({*a} & {*b}) for a, b in zip(found.ids, want.ids, strict=True)]) >= 9.8
        assert np.allclose(found.scores, want.scores, atol=5e-3)


@pytest.mark.fault
async def test_the_copy_is_made_again_after_a_loss() -> None:
    async with cb.device("cpu", isolation="process", standby=None) as gpu, asyncio.timeout(LIMIT):
        index = cb.DeviceVectorIndex(gpu, cb.CpuVectorIndex(24, dtype="f32"))
        index.upsert(range(300), vectors(300))
        queries = vectors(4, seed=1)
        assert await same(index, queries)
        pid, copy = gpu.health().host_pid, index._copy
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        found = await asyncio.gather(*(same(index, queries, k) for k in (1, 5, 10)))
        assert found == [True] * 3
        assert index._copy is not copy
        assert gpu.health().host_pid != pid


def test_the_rows_are_on_the_host() -> None:
    with pytest.raises(TypeError, match="pass a CpuVectorIndex"):
        cb.DeviceVectorIndex(None, 24)  # type: ignore[arg-type]
