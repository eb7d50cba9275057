"""Products with few rows: constant matrices in panels, on a CPU."""

from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import model, node

import callboard as cb
from callboard.kernel.engine.mapped import tools

RNG = np.random.default_rng(8)
W = RNG.standard_normal((192, 128)).astype("f4")
TALL = RNG.standard_normal((1 << 13, 192)).astype("f4")
"""So large that it is on the device before a node reads it."""


def product(op: str, w: Any, shape: list[Any], **attributes: Any) -> bytes:
    return model([node(op, ["x", "w"], ["y"], **attributes)], {"x": ("f32", shape)}, {"y": ("f32", None)}, {"w": w})


def widths(plan: Any) -> list[int]:
    """Widths of the panels that the device has."""
    return sorted(key[0] for key in plan.resident.computed if isinstance(key, tuple))


@pytest.mark.parametrize(
    "op, w, attributes, width",
    [
        ("MatMul", W, {}, 32),
        ("Gemm", W, {}, 32),
        ("Gemm", np.ascontiguousarray(W.T), {"transB": 1}, 32),
        ("MatMul", np.ascontiguousarray(W[:, :112]), {}, 16),
        ("MatMul", TALL, {}, 16),
    ],
)
async def test_products_by_panels_are_equal(op: str, w: Any, attributes: Any, width: int) -> None:
    rows = 6
    x = RNG.standard_normal((rows, w.shape["transB" in attributes])).astype("f4")
    want = x @ (w.T if attributes else w)
    async with cb.device("cpu") as dev:
        plan = await dev.engine.build(product(op, w, ["n", "k"], **attributes), engine="callboard")
        found = await dev.engine.context(plan)(x=dev.put(x)).get()
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
        assert widths(plan) == [width]
        context = dev.engine.context(plan, record=dev.record)
        for _ in range(3):
            again = await context(x=dev.put(2 * x)).get()
            np.testing.assert_allclose(again, 2 * want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


async def test_stacks_of_rows_and_wider_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels of 32 columns for few rows, of 16 for more, none for many, for one, and where there is no room."""
    x = RNG.standard_normal((400, 192)).astype("f4")
    async with cb.device("cpu") as dev:
        plan = await dev.engine.build(product("MatMul", W, ["a", "b", 192]), engine="callboard")
        context = dev.engine.context(plan)

        async def computed(*shape: int) -> list[int]:
            rows = int(np.prod(shape))
            found = await context(x=x[:rows].reshape(*shape, 192)).get()
            np.testing.assert_allclose(found, (x[:rows] @ W).reshape(*shape, 128), rtol=1e-4, atol=1e-4)
            return widths(plan)

        assert await computed(1, 1) == []
        assert await computed(20, 20) == []
        monkeypatch.setattr(tools, "MOST_PANELS", W.size)
        assert await computed(2, 5) == [32]
        assert await computed(10, 20) == [32]  # no room for others
        monkeypatch.setattr(tools, "MOST_PANELS", 2 * W.size)
        assert await computed(10, 20) == [16, 32]


async def test_weights_that_can_be_replaced_are_in_no_panels() -> None:
    x = RNG.standard_normal((6, 192)).astype("f4")
    async with cb.device("cpu") as dev:
        plan = await dev.engine.build(product("MatMul", W, ["n", 192]), engine="callboard", refit=True)
        plan.refit({"w": 2 * W})
        found = await dev.engine.context(plan)(x=x).get()
        np.testing.assert_allclose(found, 2 * (x @ W), rtol=1e-4, atol=1e-4)
        assert widths(plan) == []


async def test_a_product_that_does_not_fit_is_refused() -> None:
    async with cb.device("cpu") as dev:
        plan = await dev.engine.build(product("MatMul", W, ["n", "k"]), engine="callboard")
        with pytest.raises(cb.ShapeError, match="pass other values or another shape of the input 'x'"):
            dev.engine.context(plan)(x=np.ones((6, 191), "f4"))
