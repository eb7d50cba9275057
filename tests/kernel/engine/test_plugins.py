"""Operators of a program's own in callboard's engine."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import model, node

import callboard as cb
from callboard.core.layout import Layout, layout_of
from callboard.kernel.engine.plugins import register_plugin, unregister_plugin

X = np.random.default_rng(4).standard_normal((3, 4)).astype("f4")


@cb.kernel("in x: f32[n, m], out out: f32[n, m], most: f32", cuda='extern "C" __global__ void capped() {}')
def capped(x: Any, out: Any, most: float) -> None:
    np.minimum(x, most, out=out)


def halved(layouts: Sequence[Layout | None], attributes: Mapping[str, Any]) -> list[Layout]:
    (x,) = layouts
    assert x is not None
    if x.shape[1] % 2:
        raise cb.ShapeError(f"Pairs: x has {x.shape[1]} columns, expected an even number")
    return [layout_of(x.dtype, (x.shape[0], x.shape[1] // 2))]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    @register_plugin("my", "Pairs", infer=halved)
    def pairs(x: Any, *, most: float = 1.0, mode: str = "sum") -> Any:
        low = capped(x, most)
        return low[:, ::2] + low[:, 1::2] if mode == "sum" else low

    yield
    unregister_plugin("my", "Pairs")


def network(**attributes: Any) -> bytes:
    nodes = [node("Neg", ["x"], ["a"]), node("Pairs", ["a"], ["b"], "my", **attributes), node("Relu", ["b"], ["y"])]
    return model(nodes, {"x": ("f32", ["n", "m"])}, {"y": ("f32", ["n", "k"])})


async def test_a_kernel_is_an_operator_of_a_model() -> None:
    async with cb.device("cpu") as dev:
        plan = await dev.engine.build(network(most=0.25))
        assert (plan.engine, plan.reason) == ("callboard", "the model has the plugin my.Pairs")
        low = np.minimum(-X, np.float32(0.25))
        y = dev.engine.context(plan)(x=X)
        np.testing.assert_array_equal(await y.get(), np.maximum(low[:, ::2] + low[:, 1::2], 0))
        again = await dev.engine.load(plan.serialize())
        np.testing.assert_array_equal(await dev.engine.context(again)(x=X).get(), await y.get())


async def test_shapes_are_inferred_and_compared() -> None:
    async with cb.device("cpu") as dev:
        context = dev.engine.context(await dev.engine.build(network()))
        with pytest.raises(cb.ShapeError, match="Pairs: x has 3 columns, expected an even number"):
            context(x=X[:, :3])
        wrong = dev.engine.context(await dev.engine.build(network(mode="none")))
        with pytest.raises(cb.ShapeError, match=r"node 1 Pairs: output 0 of the plugin my\.Pairs is f32\[3, 4\]"):
            wrong(x=X)


async def test_nodes_are_checked_against_the_function() -> None:
    async with cb.device("cpu") as dev:
        with pytest.raises(cb.UnsupportedOp, match="Pairs's attribute other"):
            await dev.engine.build(network(other=1), engine="callboard")
        data = network()
        plan = await dev.engine.build(data)
        unregister_plugin("my", "Pairs")
        try:
            with pytest.raises(cb.UnsupportedOp, match=r"lacks my\.Pairs"):
                await dev.engine.load(plan.serialize())
            await dev.engine.context(plan)(x=X).get()
        finally:
            register_plugin("my", "Pairs")(lambda x: x)


def test_names_of_onnx_are_not_replaced() -> None:
    with pytest.raises(cb.ShapeError, match="use another for the plugin Relu"):
        register_plugin("", "Relu")
