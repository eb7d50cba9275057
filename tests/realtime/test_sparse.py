"""``GpuSparseStructureActor``: against SciPy, and what the original did wrong."""

import asyncio
import os
import signal
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import callboard as cb


async def test_products_are_those_of_scipy_whatever_changes() -> None:
    draw = np.random.default_rng(0)
    rows, cols = draw.integers(0, 6, 40), draw.integers(0, 5, 40)  # some places twice
    values = draw.normal(size=40).astype("f4")
    async with cb.device("cpu", isolation=None) as gpu:
        actor = cb.GpuSparseStructureActor(gpu, 7, 5)
        dense = sp.coo_array((values, (rows, cols)), (7, 5)).toarray()
        assert actor.set_entries(rows, cols, values) == len(set(zip(rows.tolist(), cols.tolist(), strict=True)))
        x, y, many = (draw.normal(size=shape).astype("f4") for shape in (5, 7, (5, 3)))

        async def same() -> None:
            np.testing.assert_allclose(await actor.spmv(x), dense @ x, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(await actor.spmv(y, transpose=True), dense.T @ y, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(await actor.spmm(many), dense @ many, rtol=1e-5, atol=1e-5)

        await same()
        changes: Any = (("set", (rows[0], cols[0])), ("add", (rows[1], cols[1])), ("set", (6, 4)))
        for how, place in changes:
            actor.update([place[0], place[0]], [place[1], place[1]], [1.0, 2.0], how=how)
            dense[place] = dense[place] + 3.0 if how == "add" else 2.0
            await same()
        assert actor.remove([6, 6], [4, 4]) == 1
        dense[6, 4] = 0
        await same()
        assert actor.stats().updates == 2
        assert actor.stats().uploads == 3


async def test_products_of_two() -> None:
    async with cb.device("cpu", isolation=None) as gpu:
        one, other = (cb.GpuSparseStructureActor(gpu, 3, 3, "f8") for _ in range(2))
        one.set_entries([0, 1, 2], [1, 2, 0], [1.0, 2.0, 3.0])
        other.set_entries([0, 1], [1, 0], [5.0, 7.0])
        found = await one.spgemm(other)
        np.testing.assert_array_equal(found.toarray(), [[7, 0, 0], [0, 0, 0], [0, 15, 0]])
        with pytest.raises(cb.ShapeError, match="other has 2 rows; this has 3 columns"):
            await one.spgemm(cb.GpuSparseStructureActor(gpu, 2, 3, "f8"))


async def test_entries_outside_of_the_matrix_are_refused_not_skipped() -> None:
    async with cb.device("cpu", isolation=None) as gpu:
        actor = cb.GpuSparseStructureActor(gpu, 2, 3)
        actor.set_entries([0], [0], [1.0])
        with pytest.raises(cb.ShapeError, match=r"cols\[1\] is 3; the matrix has 3 cols"):
            actor.set_entries([0, 1], [2, 3], [1.0, 1.0])
        with pytest.raises(cb.ShapeError, match=r"rows\[0\] is -1"):
            actor.update([-1], [0], [1.0])
        with pytest.raises(cb.ShapeError, match=r"values has shape \[1\]; pass 2 numbers"):
            actor.update([0, 1], [0, 1], [1.0])
        with pytest.raises(TypeError, match="cols has dtype float64; pass integers"):
            actor.update([0], [0.5], [1.0])
        with pytest.raises(cb.ShapeError, match=r"x has shape \[2\]; expected \[3\]"):
            await actor.spmv(np.ones(2, "f4"))
        assert actor.stats() == (2, 3, 1, 0, 0)
        assert (await actor.spmv(np.ones(3, "f4"))).tolist() == [1, 0]
        actor.set_entries([], [], [])
        assert (await actor.spmv(np.ones(3, "f4"))).tolist() == [0, 0]


async def test_a_lost_device_costs_no_entry() -> None:
    async with cb.device("cpu", isolation="process") as gpu:
        actor = cb.GpuSparseStructureActor(gpu, 2, 2)
        actor.set_entries([0, 1], [1, 0], [2.0, 3.0])
        assert (await actor.spmv(np.ones(2, "f4"))).tolist() == [2, 3]
        pid = gpu.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        found = await asyncio.gather(*(actor.spmv(np.full(2, n, "f4")) for n in range(3)))
        assert [one.tolist() for one in found] == [[0, 0], [2, 3], [4, 6]]


async def test_matrices_of_scipy_go_in_and_out_in_any_format() -> None:
    dense = np.kron([[1, 0], [0, 2]], [[1, 2], [3, 0]]).astype("f4")
    async with cb.device("cpu", isolation=None) as gpu:
        matrix = cb.GpuSparseStructureActor(gpu, 4, 4)
        for kind in ("bsr", "csr", "csc", "coo", "dia", "lil", "dok"):
            assert matrix.set_matrix(sp.csr_array(dense).asformat(kind)) >= 6
            assert (await matrix.spmv(np.arange(4.0))).tolist() == (dense @ np.arange(4)).tolist()
            np.testing.assert_array_equal(matrix.to_scipy(kind).toarray(), dense)
        assert matrix.to_scipy("bsr", blocksize=(2, 2)).blocksize == (2, 2)
        with pytest.raises(TypeError, match="csr_array"):
            matrix.set_matrix(dense)
        with pytest.raises(cb.ShapeError, match="this one is"):
            matrix.set_matrix(sp.eye_array(3))
        with pytest.raises(ValueError, match="'bsr'"):
            matrix.to_scipy("ell")  # type: ignore[arg-type]
