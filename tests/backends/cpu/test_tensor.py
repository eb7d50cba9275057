"""Behaviour specific to the CPU library; that of every backend is in the conformance suites."""

import numpy as np
import pytest

import callboard as cb
from callboard.backends.cpu.tensor import CpuTensor
from callboard.kernel.tensor import Einsum
from callboard.testing.session import LibrarySession


async def test_plans_are_kept_by_strides_too() -> None:
    """The same extents that lie another way have a plan of their own; the same layout has the same one."""
    a = np.arange(16.0).reshape(4, 4)
    async with cb.device("cpu", standby=None) as device:
        ref = device.put(a)
        for _ in range(3):
            assert (await device.tensor.einsum("ij->i", ref).get()).tolist() == a.sum(1).tolist()
            assert (await device.tensor.einsum("ij->i", ref.T).get()).tolist() == a.sum(0).tolist()
        plans = (await device.stats()).plans["tensor"]
        assert (plans.entries, plans.misses, plans.hits) == (2, 2, 4)


def test_plans_are_limited() -> None:
    most = CpuTensor.max_plans
    assert most is not None
    with LibrarySession("cpu") as session:
        ref = session.put(np.ones((2, 2)))
        letters = "abcdefghijklmnopqrstuvwxyz"
        for first, second in [(x, y) for x in letters for y in letters if x != y][: most + 5]:
            session.submit(Einsum(equation=first + second, operands=(ref,)))
        assert len([plan for plan in session._plans.values() if plan.lib == "tensor"]) == most


@pytest.mark.parametrize("equation", ["mk,nkp->mnp", "mk,nkp->nmp", "mk,nkp->pnm"])
async def test_matrices_with_columns_in_panels(equation: str) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((5, 7)).astype("f4"), rng.standard_normal((3, 7, 4)).astype("f4")
    left, right, out = equation.replace("->", ",").split(",")
    async with cb.device("cpu") as device:
        refs = device.put(a), device.put(b)
        found = device.tensor.contract(*refs, modes_a=left, modes_b=right, modes_out=out)
        np.testing.assert_allclose(await found.get(), np.einsum(equation, a, b), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(
            await device.tensor.contract(*refs, modes_a=left, modes_b=right, modes_out=out, alpha=2.0).get(),
            2 * np.einsum(equation, a, b),
            rtol=1e-5,
            atol=1e-5,
        )
        strided = device.tensor.contract(
            device.put(np.ascontiguousarray(a.T)).T, refs[1], modes_a=left, modes_b=right, modes_out=out
        )
        np.testing.assert_allclose(await strided.get(), np.einsum(equation, a, b), rtol=1e-5, atol=1e-5)
