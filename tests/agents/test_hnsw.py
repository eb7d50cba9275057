"""What faiss does: scans of f16 rows find the same as NumPy, and the graph finds nearly all, through all writes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import lazily
from tests.agents.index_lab import plain, vectors

import callboard as cb
from callboard.agents.index import coarse, exact, scanning

faiss: Any = lazily.importorskip("faiss", reason="for the extra index")


def recall(index: cb.CpuVectorIndex, rows: Any, ids: list[int], queries: Any, metric: str, **options: Any) -> float:
    found = [index.search_now(query, 10, **options).ids.tolist() for query in queries]
    wanted = [plain(rows, ids, query, 10, metric) for query in queries]
    return float(np.mean([len({*a} & {*b}) / 10 for a, b in zip(found, wanted, strict=True)]))


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_a_scan_finds_what_numpy_finds(metric: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, queries = vectors(1500), vectors(6, seed=1)
    index = cb.CpuVectorIndex(24, metric=metric, dtype="f16")
    index.upsert(range(1500), rows, [{"odd": n % 2} for n in range(1500)])
    index.delete(range(40))
    known: list[Any] = []

    def noted(*given: Any) -> Any:
        known.append(scanning.scanned(*given))
        return known[-1]

    monkeypatch.setattr(exact, "scanned", noted)
    for where in (None, {"odd": 1}, lambda each: each["odd"] == 0):
        for k in (1, 10, 2000):
            together = index.search_now(queries, k, where=where)
            for n, query in enumerate(queries):
                alone = index.search_now(query, k, where=where)
                assert alone.ids.tolist() == together.ids[n].tolist()
                assert alone.scores.tolist() == together.scores[n].tolist()
    assert len(known) == 3 * 3 * 6
    assert all(each is not None for each in known)


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("useful", [True, False])
def test_coarse_rows_are_made_by_queries_and_change_no_result(
    useful: bool, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coarse, "AT_ONCE", 200 * 64)
    rows, queries = np.repeat(vectors(300, 64), 2, axis=0), vectors(12, 64, seed=1)
    if not useful:
        rows[-1] = np.eye(64)[0]  # its largest number is beyond those that are represented
    index, plainly = cb.CpuVectorIndex(64, dtype=dtype), cb.CpuVectorIndex(64, dtype=dtype)
    for each in (index, plainly):
        each.upsert(range(600), rows)
    monkeypatch.setattr(plainly.snapshot().numbering, "of", lambda snapshot: None)
    had = []
    for query in queries:
        found, wanted = index.search_now(query, 9), plainly.search_now(query, 9)
        assert found.ids.tolist() == wanted.ids.tolist()  # also of the equal rows
        assert found.scores.tolist() == wanted.scores.tolist()
        had.append(index.snapshot().numbering.of(index.snapshot()) is not None)
        if len(had) == 6:
            for each in (index, plainly):
                each.delete([3])
                each.upsert([700, 701], rows[:2] + 0.001)
    assert had[-1] == useful


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_no_query_finds_nothing(dtype: Any) -> None:
    index = cb.CpuVectorIndex(24, dtype=dtype)
    index.upsert(range(300), vectors(300))
    assert index.search_now(vectors(3)[:0], 5).ids.shape == (0, 5)


def test_a_scan_of_many_equal_rows_keeps_their_order() -> None:
    index = cb.CpuVectorIndex(3, metric="ip", dtype="f16")
    index.upsert(np.random.default_rng(0).permutation(500).tolist(), np.tile([1.0, 2.0, 3.0], (500, 1)))
    assert index.search_now([1, 1, 1], 4).ids.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_a_graph_finds_nearly_all_through_all_writes(metric: Any, tmp_path: Path) -> None:
    rows, queries = vectors(2400), vectors(20, seed=1)
    index = cb.HnswVectorIndex(24, metric=metric, dtype="f32", ef_build=64, ef=128)
    index.upsert(range(2400), rows, [{"odd": n % 2, "rare": n % 100 == 0} for n in range(2400)])
    everything = list(range(2400))
    assert recall(index, rows, everything, queries, metric) > 0.95
    odd = everything[1::2]
    assert recall(index, rows[odd], odd, queries, metric, where={"odd": 1}) > 0.95
    rare = everything[::100]
    assert recall(index, rows[rare], rare, queries, metric, where={"rare": True}) == 1  # searched exactly
    index.delete(range(1000))
    index.upsert(range(1000, 1100), rows[:100])
    now, ids = np.concatenate([rows[:100], rows[1100:]]), everything[1000:]
    assert recall(index, now, ids, queries, metric) > 0.95
    index.save(tmp_path / "index")  # with the graph, and what was deleted
    for _ in range(2):
        loaded = cb.HnswVectorIndex.load(tmp_path / "index")
        assert (len(loaded), loaded.ef_build) == (1400, 64)
        assert recall(loaded, now, ids, queries, metric) > 0.95
        loaded.save(tmp_path / "index")
    index.delete(range(1100, 1500))
    index.upsert([7], rows[7:8])  # most were deleted: a new graph of the rest
    assert index.snapshot().count == 1001
    index.upsert(range(5000, 5100), rows[200:300])
    now, ids = np.concatenate([rows[:100], rows[1500:], rows[7:8], rows[200:300]]), [*range(1000, 1100), *ids[500:], 7]
    assert recall(index, now, [*ids, *range(5000, 5100)], queries, metric) > 0.95
    plain_one = cb.CpuVectorIndex.load(tmp_path / "index")  # the same file
    assert len(plain_one) == 1400


def test_flipped_bits_of_a_graph_are_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "index"
    index = cb.HnswVectorIndex(24, dtype="f32", ef_build=8)
    index.upsert(range(100), vectors(100))
    index.save(path)
    data = path.read_bytes()
    at = data.index(b"IHN")  # faiss' own mark
    path.write_bytes(data[:at] + b"?" + data[at + 1 :])
    for verify in (True, False):
        with pytest.raises(ValueError, match="index: its array 'graph' is damaged"):
            cb.HnswVectorIndex.load(path, verify=verify)


@pytest.mark.parametrize("kind", [int, str])
def test_a_file_has_the_graph_and_its_deleted_rows(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, queries = vectors(1500), vectors(20, seed=1)
    index = cb.HnswVectorIndex(24, ef_build=16, ef=16)
    index.upsert([kind(n) for n in range(1500)], rows, [{"n": n} for n in range(1500)])
    index.delete([kind(7)])
    index.upsert([kind(8)], rows[:1], [{"n": -8}])
    index.save(tmp_path / "index")
    grown: list[int] = []
    monkeypatch.setattr(cb.HnswVectorIndex, "_grow", lambda self, now: grown.append(now.count))
    for mmap in (True, False):
        loaded = cb.HnswVectorIndex.load(tmp_path / "index", mmap=mmap)
        assert (len(loaded), kind(7) in loaded, loaded.metadata(kind(8))) == (1499, False, {"n": -8})
        for where in (None, {"n": 8}, {"n": -8}):
            want, got = index.search_now(queries, 5, where=where), loaded.search_now(queries, 5, where=where)
            assert np.array_equal(want.ids, got.ids)
            assert np.array_equal(want.scores, got.scores)
        loaded.delete([kind(9)])
    assert not grown
    exact_one = cb.CpuVectorIndex.load(tmp_path / "index")
    assert (len(exact_one), kind(7) in exact_one) == (1499, False)
    exact_one.save(tmp_path / "index")  # without what was deleted
    assert cb.CpuVectorIndex.load(tmp_path / "index").snapshot().count == 1499


def test_a_write_that_fails_leaves_an_index_that_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = vectors(1300)
    index = cb.HnswVectorIndex(24, dtype="f32")
    index.upsert(range(1200), rows[:1200])
    graph: Any = index._graph
    added = []

    def add(some: Any) -> None:
        if added:
            raise MemoryError
        added.append(type(graph).add(graph, some))

    monkeypatch.setattr(graph, "add", add, raising=False)
    with pytest.raises(MemoryError):
        index.upsert(range(1200, 1300), rows[1200:][::-1])
    assert (len(index), index.search_now(rows[5], 1).ids.tolist()) == (1200, [5])
    index.upsert(range(1200, 1300), rows[1200:])
    assert [index.search_now(rows[n], 1).ids.item() for n in range(1200, 1300)] == [*range(1200, 1300)]


def test_small_parts_are_added_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    faiss = pytest.importorskip("faiss")
    before, seen = faiss.omp_get_max_threads(), list[tuple[int, int]]()
    add = faiss.IndexHNSWFlat.add

    def counted(self: Any, rows: Any) -> None:
        seen.append((len(rows), faiss.omp_get_max_threads()))
        add(self, rows)

    monkeypatch.setattr(faiss.IndexHNSWFlat, "add", counted)
    faiss.omp_set_num_threads(3)
    try:
        index = cb.HnswVectorIndex(24, ef_build=8)
        index.upsert(range(2100), vectors(2100))
        index.upsert(range(2100, 2200), vectors(100, seed=1))
        assert faiss.omp_get_max_threads() == 3
    finally:
        faiss.omp_set_num_threads(before)
    assert seen == [(2048, 3), (52, 1), (64, 1), (36, 1)]
