"""Models whose outputs have shapes that follow from those of the inputs, and models whose have not."""

from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import encoder, graph, linear, model, node

from callboard.core.dtype import DTYPES
from callboard.core.layout import BoundedExtent, layout_of
from callboard.kernel.engine.inputs.following import MOST_HELD, Found, follow
from callboard.kernel.engine.onnxfile import model_of

ANY: Any = {"y": ("f32", None)}
X: Any = {"x": ("f32", ["n", 4])}
TO: Any = {**X, "to": ("i64", [2])}
ONES = {"ones": np.array([1, 1])}


@pytest.mark.parametrize(
    "nodes, inputs, weights, expected",
    [
        ([node("Relu", ["x"], ["y"])], X, {}, True),
        ([node("NonZero", ["x"], ["y"])], X, {}, False),
        ([node("Reshape", ["x", "to"], ["y"])], TO, {}, False),
        ([node("Reshape", ["x", "ones"], ["y"])], X, ONES, True),
        ([node("Shape", ["x"], ["s"]), node("Expand", ["one", "s"], ["y"])], X, {"one": np.float32(1)}, True),
        (
            [
                node("Shape", ["x"], ["s"]),
                node("Mul", ["s", "ones"], ["t"]),
                node("ConstantOfShape", ["t"], ["z"]),
                node("Add", ["z", "x"], ["y"]),
            ],
            X,
            ONES,
            True,
        ),
        ([node("Add", ["to", "ones"], ["s"]), node("Expand", ["x", "s"], ["y"])], TO, ONES, False),
        ([node("Slice", ["x", "ones", "to"], ["y"])], TO, ONES, False),
        ([node("Slice", ["x", "ones", "ones", "", "ones"], ["y"])], X, ONES, True),
        ([node("Clip", ["x", "", "x"], ["y"])], X, {}, True),
        ([node("Strange", ["x"], ["y"], "my")], X, {}, False),
        ([node("Relu", ["x"], ["y"], "my")], X, {}, False),
        (
            [node("If", ["c"], ["y"], then_branch=graph([node("Neg", ["x"], ["a"])], {}, {"a": ("f32", None)}))],
            {**X, "c": ("bool", [])},
            {},
            False,
        ),
    ],
)
def test_shapes_that_follow(nodes: list[bytes], inputs: Any, weights: Any, expected: bool) -> None:
    assert follow(model_of(model(nodes, inputs, ANY, weights))) is expected


def test_whole_models() -> None:
    assert follow(model_of(linear()))
    assert follow(model_of(encoder(1)))


def test_weights_that_can_be_replaced_are_values() -> None:
    data = model_of(model([node("Resize", ["x", "", "s"], ["y"])], X, ANY, {"s": np.ones(2, "f4")}))
    assert follow(data)
    assert not follow(data, {"s"})


class Ref:
    def __init__(self, *shape: Any) -> None:
        self.layout = layout_of(DTYPES["f32"], shape)


def test_they_are_known_once_the_outputs_are() -> None:
    found, refs = Found(True), (Ref(BoundedExtent(9), 2), Ref(3))
    assert found.shapes("a") is None
    found.keep("a", refs)
    assert found.shapes("a") is None
    refs[0].layout = layout_of(DTYPES["f32"], (5, 2))
    assert found.shapes("a") == ((5, 2), (3,))
    assert found.shapes("a") == ((5, 2), (3,))
    assert found.shapes("b") is None


def test_few_outputs_are_held() -> None:
    found, first = Found(True), Ref(BoundedExtent(9))
    found.keep(0, (first,))
    for at in range(1, MOST_HELD + 1):
        found.keep(at, (Ref(BoundedExtent(9)),))
    first.layout = layout_of(DTYPES["f32"], (5,))
    assert found.shapes(0) is None


def test_outputs_of_other_models_are_not_held() -> None:
    found, ref = Found(False), Ref(BoundedExtent(9))
    found.keep("a", (ref,))
    ref.layout = layout_of(DTYPES["f32"], (5,))
    assert found.shapes("a") is None
