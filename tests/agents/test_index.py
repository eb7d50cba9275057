"""``CpuVectorIndex`` against plain NumPy: metrics, dtypes, ties, filters, writes, files, errors."""

import asyncio
import os
import struct
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agents.index_lab import plain, vectors

import callboard as cb
from callboard.agents.index import exact, files, snapshot
from callboard.agents.index.coding import decode

LIMIT = 30.0


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
async def test_the_nearest_are_those_of_plain_numpy(metric: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PIECE", 700)
    rows, queries = vectors(2000), vectors(70, seed=1)
    ids = np.random.default_rng(2).permutation(2000)
    index = cb.CpuVectorIndex(24, metric=metric, dtype="f32")
    index.upsert(ids, rows)
    for k in (1, 7, 2500):
        found = await index.search(queries, k)
        assert found.ids.shape == found.scores.shape == (70, min(k, 2000))
        for n in (0, 69):
            assert found.ids[n].tolist() == plain(rows, ids.tolist(), queries[n], k, metric)
    one = await index.search(queries[3], 7)
    assert one.ids.tolist() == (await index.search(queries, 7)).ids[3].tolist()
    assert one.scores.tolist() == (await index.search(queries, 7)).scores[3].tolist()  # whatever the batch


@pytest.mark.parametrize("dtype, least", [("f16", 0.99), ("i8", 0.9)])
async def test_smaller_rows_find_nearly_the_same(dtype: Any, least: float) -> None:
    rows, queries = vectors(3000, 64), vectors(40, 64, seed=1)
    index, whole = cb.CpuVectorIndex(64, dtype=dtype), cb.CpuVectorIndex(64, dtype="f32")
    for each in (index, whole):
        each.upsert(range(3000), rows)
    found, want = await index.search(queries), await whole.search(queries)
    recall = np.mean([len({*a} & {*b}) / 10 for a, b in zip(found.ids, want.ids, strict=True)])
    assert recall >= least
    assert np.allclose(found.scores, want.scores, atol=0.02)


def test_all_halves_are_converted_exactly() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    assert np.array_equal(decode(halves[:, None], None)[:, 0], halves.astype("f4"))


async def test_equal_scores_are_in_the_order_of_ids() -> None:
    index = cb.CpuVectorIndex(3, metric="ip")
    ids = np.random.default_rng(0).permutation(5000).tolist()
    index.upsert(ids, np.tile([1.0, 2.0, 3.0], (5000, 1)))
    assert (await index.search([1, 1, 1], 4)).ids.tolist() == [0, 1, 2, 3]
    named = cb.CpuVectorIndex(2)
    named.upsert(["b", "c", "a"], [[1, 0], [1, 0], [2, 0]])
    found = await named.search([[1, 0]], 2)
    assert (found.ids.tolist(), found.scores.tolist()) == ([["a", "b"]], [[1, 1]])


async def test_writes_replace_delete_and_compact() -> None:
    index = cb.CpuVectorIndex(24, dtype="f32")
    rows = vectors(1500)
    index.upsert(range(1500), rows)
    index.upsert(range(1400), rows[::-1][:1400])
    assert (len(index), 3 in index, 1500 in index) == (1500, True, False)
    assert index.delete([*range(1000), 9999]) == 1000
    index.upsert([7], rows[:1], [{"new": True}])
    assert index.snapshot().count == 501  # the rows that are gone have left
    now = np.concatenate([rows[:1], rows[::-1][1000:1400], rows[1400:]])
    ids = [7, *range(1000, 1500)]
    for query in vectors(3, seed=4):
        assert (await index.search(query, 20)).ids.tolist() == plain(now, ids, query, 20, "cosine")
    assert index.metadata(7) == {"new": True}
    assert index.delete(ids) == 501
    assert (await index.search(rows[0])).ids.shape == (0,)
    index.upsert(["names"], rows[:1])  # another kind of ids, since it is empty
    assert (await index.search(rows[:2])).ids.tolist() == [["names"]] * 2


async def test_filters_by_metadata() -> None:
    rows = vectors(900)
    index = cb.CpuVectorIndex(24, dtype="f32")
    index.upsert(range(900), rows, [{"third": n % 3, "rare": n % 90 == 0} for n in range(900)])
    index.delete([0])
    query = vectors(1, seed=1)[0]
    for where, kept in [
        ({"third": 1}, [n for n in range(900) if n % 3 == 1]),
        ({"rare": True, "third": 0}, range(90, 900, 90)),
        (lambda each: each["third"] == 2, [n for n in range(900) if n % 3 == 2]),
        ({"none": 1}, []),
        ({}, range(1, 900)),
    ]:
        found = await index.search(query, 12, where=where)  # type: ignore[arg-type]
        assert found.ids.tolist() == plain(rows[list(kept)], list(kept), query, 12, "cosine")


async def test_a_search_sees_all_of_a_write_or_none() -> None:
    rows = vectors(400)
    index = cb.CpuVectorIndex(24, metric="ip")
    index.upsert(range(400), rows)
    before, kept = index.snapshot(), index.snapshot().decoded(slice(0, 400)).copy()
    stop = threading.Event()
    wrong: list[Any] = []

    def read() -> None:
        while not stop.is_set():
            total = index.search_now(np.ones(24), 400).scores.sum() / rows.sum()
            if not np.isclose(total, (1, 2), rtol=1e-3).any():
                wrong.append(total)

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(60):
        index.upsert(range(400), rows * (2 - n % 2))
    stop.set()
    reader.join()
    assert not wrong
    assert np.array_equal(before.decoded(slice(0, 400)), kept)
    assert before.alive.all()


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("kind", [int, str])
async def test_a_file_holds_the_index(tmp_path: Path, dtype: Any, mmap: bool, kind: Any) -> None:
    rows, path = vectors(300), tmp_path / "index"
    index = cb.CpuVectorIndex(24, metric="l2", dtype=dtype)
    index.upsert([kind(n) for n in range(300)], rows, [{"odd": n % 2} for n in range(300)])
    index.delete([kind(5)])
    index.save(path)
    found = cb.CpuVectorIndex.load(path, mmap=mmap)
    assert isinstance(found.snapshot().rows, np.memmap) == mmap
    for where in (None, {"odd": 1}):
        want, got = await index.search(rows[:4], where=where), await found.search(rows[:4], where=where)
        assert np.array_equal(want.ids, got.ids)
        assert np.array_equal(want.scores, got.scores)
    found.upsert([kind(5)], rows[5:6])
    found.save(path)  # over the file that is mapped
    assert len(cb.CpuVectorIndex.load(path)) == len(found) == 300
    assert os.listdir(tmp_path) == ["index"]


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index"
    index = cb.CpuVectorIndex(24, dtype="f32")
    index.save(path)
    assert len(cb.CpuVectorIndex.load(path)) == 0
    index.upsert(range(50), vectors(50))
    index.save(path)
    data = path.read_bytes()
    for broken, says in [
        (b"", "not the file of an index"),
        (b"x" * 100, "not the file of an index"),
        (data[:60], "header is damaged"),
        (data[:30] + b"?" + data[31:], "header is damaged"),
        (data[:-600], "ends within"),
    ]:
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=says):
            cb.CpuVectorIndex.load(path)


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("part", ["rows", "squares", "scales", "ids"])
def test_a_flipped_bit_of_an_array_is_found(tmp_path: Path, part: str, mmap: bool) -> None:
    path = tmp_path / "index"
    index = cb.CpuVectorIndex(24, dtype="i8")
    index.upsert(range(50), vectors(50))
    index.save(path)
    _, arrays = files.read(path, mapped=False, verify=True)
    data = path.read_bytes()
    at = data.index(arrays[part].tobytes()) + 9
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(ValueError, match=f"index: its array '{part}' is damaged; save the index again"):
        cb.CpuVectorIndex.load(path, mmap=mmap)
    assert len(cb.CpuVectorIndex.load(path, mmap=mmap, verify=False)) == 50
    start, end = data.index(b', "sums"'), data.index(b"}", data.index(b', "sums"'))
    text = data[20:start] + data[end + 1 :]  # as files were before they had checksums
    length = struct.unpack_from("<Q", data, 12)[0]
    plain = text[: length - (end + 1 - start)] + b" " * (end + 1 - start)
    path.write_bytes(struct.pack("<8sIQ", data[:8], zlib.crc32(plain), length) + plain + data[20 + length :])
    assert len(cb.CpuVectorIndex.load(path, mmap=mmap)) == 50


@pytest.mark.parametrize(
    "ids, rows, metadata, says",
    [
        ([1, 1], np.ones((2, 3)), None, "ids holds 1 twice"),
        ([1, "a"], np.ones((2, 3)), None, "ids holds 'a', of str; use ints only"),
        ([True], np.ones((1, 3)), None, "ids holds True, of bool"),
        ([1 << 63], np.ones((1, 3)), None, "beyond 64 bits"),
        (["a"], np.ones((1, 3)), None, "ids holds str ids, and the index has int ids"),
        ("a", np.ones((1, 3)), None, "pass a list of ids"),
        ([1], np.ones((2, 3)), None, "vectors has 2 rows for 1 items"),
        ([1], np.ones((1, 2)), None, r"vectors has shape \[1, 2\]; expected \[rows, 3\]"),
        ([1], [[1, np.nan, 0]], None, "vectors: row 0 holds nan"),
        ([1, 2], [[1, 1, 1], [0, 0, 0]], None, "row 1 is zero, which has no direction"),
        ([1], np.ones((1, 3)), [{}, {}], "metadata has 2 items for 1 ids"),
        ([1], np.ones((1, 3)), [{"a": [[1]]}], r"metadata\[0\] has 'a': \[\[1\]\]"),
    ],
)
def test_a_bad_write_is_refused_and_changes_nothing(ids: Any, rows: Any, metadata: Any, says: str) -> None:
    index = cb.CpuVectorIndex(3)
    index.upsert([0], np.ones((1, 3)))
    with pytest.raises((ValueError, TypeError), match=says):
        index.upsert(ids, rows, metadata)
    assert (len(index), index.snapshot().count) == (1, 1)


async def test_bad_searches_and_settings() -> None:
    index = cb.CpuVectorIndex(3)
    index.upsert([0], np.ones((1, 3)))
    for bad, says in [
        ({"queries": [1, 2]}, r"queries has shape \[2\]"),
        ({"queries": [0, 0, 0]}, "row 0 is zero"),
        ({"queries": [1, 2, np.inf]}, "row 0 holds inf"),
        ({"queries": [1, 2, 3], "k": 0}, "k is 0"),
        ({"queries": [1, 2, 3], "where": "a"}, "where is 'a'"),
        ({"queries": [1, 2, 3], "where": {"a": [[1]]}}, r"where\['a'\] is \[1\]"),
    ]:
        with pytest.raises((ValueError, TypeError), match=says):
            await index.search(**bad)  # type: ignore[arg-type]
    for settings_, says in [({"metric": "dot"}, "metric is 'dot'"), ({"dtype": "f64"}, "dtype is 'f64'")]:
        with pytest.raises(ValueError, match=says):
            cb.CpuVectorIndex(3, **settings_)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="f16 ends at 65504"):
        cb.CpuVectorIndex(1, metric="ip", dtype="f16").upsert([1], [[1e5]])


@settings(max_examples=20)
@given(
    st.lists(st.lists(st.integers(-2, 2), min_size=2, max_size=2), min_size=1, max_size=80),
    st.integers(1, 12),
    st.sampled_from(["ip", "l2"]),
)
def test_the_bound_loses_nothing_where_many_are_equal(rows: Any, k: int, metric: Any) -> None:
    before, exact.GROUP = exact.GROUP, 4
    try:
        index = cb.CpuVectorIndex(2, metric=metric)
        ids = list(range(len(rows)))[::-1]
        index.upsert(ids, rows)
        assert index.search_now([1, 2], k).ids.tolist() == plain(np.array(rows), ids, np.array([1, 2]), k, metric)
    finally:
        exact.GROUP = before


FILTERS: list[tuple[Any, Any]] = [
    ({"lang": ["de", "fr"]}, lambda m: m["lang"] in ("de", "fr")),
    ({"lang": {"$in": {"de"}}, "year": 2003}, lambda m: m["lang"] == "de" and m["year"] == 2003),
    ({"lang": {"$nin": ("de", "fr")}}, lambda m: m["lang"] not in ("de", "fr")),
    ({"lang": {"$ne": "de"}}, lambda m: m["lang"] != "de"),
    ({"lang": {"$gte": "en"}}, lambda m: m["lang"] >= "en"),
    ({"year": {"$gt": np.int64(2002), "$lte": 2005.0}}, lambda m: 2002 < m["year"] <= 2005),
    ({"year": {"$lt": 2002}}, lambda m: m["year"] < 2002),
    ({"big": {"$gt": 10**18 + 5}}, lambda m: m["big"] > 10**18 + 5),
    ({"tags": {"$contains": "odd"}}, lambda m: "odd" in m["tags"]),
    ({"tags": {"$ne": "odd"}}, lambda m: "odd" not in m["tags"]),
    ({"rare": {"$ne": 1}}, lambda m: m.get("rare") != 1),
    ({"rare": {"$gt": 0}}, lambda m: m.get("rare", 0) > 0),
    ({"mixed": {"$gte": 1}}, lambda m: not isinstance(m["mixed"], str) and m["mixed"] >= 1),
    ({"mixed": {"$gte": "1"}}, lambda m: isinstance(m["mixed"], str) and m["mixed"] >= "1"),
    ({"$or": [{"year": 2001}, {"lang": "fr"}]}, lambda m: m["year"] == 2001 or m["lang"] == "fr"),
    ({"$and": [{"year": {"$gt": 2001}}, {"year": {"$lt": 2004}}]}, lambda m: 2001 < m["year"] < 2004),
    ({"$not": {"lang": "fr", "year": 2001}}, lambda m: not (m["lang"] == "fr" and m["year"] == 2001)),
    ({"year": {"$not": {"$gt": 2003}}}, lambda m: not m["year"] > 2003),
    ({"lang": []}, lambda m: False),
]


def described(n: int) -> dict[str, Any]:
    found = {"lang": ("en", "de", "fr")[n % 3], "year": np.int64(2000 + n % 7), "big": 10**18 + n % 11}
    found |= {"tags": ["odd"] if n % 2 else ("even", np.str_("all")), "mixed": (str(n % 4), n % 4, n % 4 / 2)[n % 3]}
    return found | ({"rare": np.bool_(True)} if n % 100 == 0 else {}) | ({"rare": np.float32(0.5)} if n == 7 else {})


@pytest.mark.parametrize("where, judge", FILTERS, ids=[str(each) for each, _ in FILTERS])
async def test_operators_of_filters(where: Any, judge: Any) -> None:
    if where == {"rare": {"$gt": 0}}:  # the order of bools is not asked for
        judge = lambda m: m.get("rare") == 0.5
    rows, query = vectors(300), vectors(1, seed=1)[0]
    index, words = cb.CpuVectorIndex(24, dtype="f32"), cb.TextIndex()
    for start in (0, 150):  # a search between writes
        ids = range(start, start + 150)
        index.upsert(ids, rows[start : start + 150], [described(n) for n in ids])
        words.upsert(ids, ["a text"] * 150, [described(n) for n in ids])
        kept = [n for n in range(start + 150) if judge(described(n))]
        found = await index.search(query, 300, where=where)
        assert found.ids.tolist() == plain(rows[kept], kept, query, 300, "cosine")
        assert words.search("text", 300, where=where).ids.tolist() == kept
    index.delete([4])
    assert 4 not in index.search_now(query, 300, where=where).ids
    assert words.search("text", 300, where=judge).ids.tolist() == kept


@pytest.mark.parametrize(
    "where, error, text",
    [
        ({"year": {"$above": 3}}, ValueError, r"'\$above'; the operators are \$eq"),
        ({"year": {"above": 3}}, ValueError, "'above'"),
        ({"$xor": []}, ValueError, r"'\$xor'; use a key"),
        ({"$or": []}, ValueError, "one at least"),
        ({"$and": {"a": 1}}, TypeError, "list of dicts"),
        ({"$not": [{"a": 1}]}, TypeError, "a dict"),
        ({"year": {}}, ValueError, "empty"),
        ({"year": {"$gt": None}}, TypeError, "order of numbers"),
        ({"year": {"$in": 3}}, TypeError, "a list of values"),
        ({"year": [[1]]}, TypeError, "compare with str"),
        ("year", TypeError, "pass a dict"),
    ],
)
def test_filters_that_are_wrong(where: Any, error: Any, text: str) -> None:
    for search, asked in ((cb.CpuVectorIndex(24).search_now, vectors(1)[0]), (cb.TextIndex().search, "a")):
        with pytest.raises(error, match=text):
            search(asked, where=where)
    with pytest.raises(error, match=text):
        cb.RagPipeline.Query("What?", where=where)


def test_metadata_that_is_wrong() -> None:
    index = cb.CpuVectorIndex(24)
    for wrong in (["lang"], [{"a": object()}], [{3: "a"}], [{"a": [["b"]]}], {"lang": "en"}):
        with pytest.raises(TypeError, match="metadata"):
            index.upsert(["m"], vectors(1), wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="metadata"):
            cb.TextIndex().upsert(["m"], ["a text"], wrong)  # type: ignore[arg-type]
    assert len(index) == 0
    index.upsert(["m"], vectors(1), [{"n": np.float32(0.5), "t": np.array([1, 2])}])
    assert index.metadata("m") == {"n": 0.5, "t": [1, 2]}


@pytest.mark.parametrize("on_device", [False, True])
async def test_queries_are_taken_at_the_call(on_device: bool) -> None:
    """A caller may write its next query where this one is, also while a search runs on a thread."""
    begun, go, rows = asyncio.Event(), threading.Event(), np.eye(2, dtype=np.float32)
    loop = asyncio.get_running_loop()

    def where(metadata: Any) -> bool:
        loop.call_soon_threadsafe(begun.set)
        assert on_device or go.wait(LIMIT)
        return True

    host = cb.CpuVectorIndex(2, metric="ip", dtype="f32")
    host.upsert([1, 2], rows, [{"a": 1}, {"a": 2}])
    async with asyncio.timeout(LIMIT), cb.device("cpu", isolation="thread") as gpu:
        index = cb.DeviceVectorIndex(gpu, host) if on_device else host
        query = rows[0].copy()
        search = asyncio.create_task(index.search(query, 1, where=where))
        query[:] = rows[1]
        await begun.wait()
        go.set()
        assert (await search).ids.tolist() == [1]
        query[:] = rows[0]
        go.clear()
        begun.clear()
        search = asyncio.create_task(index.search(query, 1, where=where))
        await begun.wait()
        query[:] = rows[1]
        go.set()
        assert (await search).ids.tolist() == [1]
