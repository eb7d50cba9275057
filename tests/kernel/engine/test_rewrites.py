"""Rewrites of ONNX Runtime that are switched off, for the files that they would be wrong for."""

from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import graph, model, node

from callboard.core.dtype import as_dtype
from callboard.kernel.engine.files.rewrites import switched_off

X: Any = {"x": ("f32", ["n", 4])}
Y: Any = {"y": ("f32", ["n", 4])}
OFF = ["ReluQuantRewrite"]


def nodes_of(point: list[str]) -> list[bytes]:
    return [
        node("Relu", ["x"], ["r"]),
        node("QuantizeLinear", ["r", "s", *point], ["q"]),
        node("DequantizeLinear", ["q", "s", *point], ["y"]),
    ]


@pytest.mark.parametrize("dtype", ["u8", "i8", "u16", "i16", "f8_e4m3", "f8_e5m2"])
def test_the_zero_point_decides(dtype: str) -> None:
    off = OFF if dtype.startswith("f8") else []
    scale, zero = {"s": np.float32(0.05)}, np.zeros((), as_dtype(dtype).np)
    assert switched_off(model(nodes_of(["z"]), X, Y, {**scale, "z": zero})) == off
    constant = [node("Constant", [], ["z"], value=zero), *nodes_of(["z"])]
    assert switched_off(model(constant, X, Y, scale)) == off
    branch = graph(constant, {}, Y)
    choice = [node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)]
    assert switched_off(model(choice, {**X, "c": ("bool", [])}, Y, scale)) == off
    given = model(nodes_of(["z"]), {**X, "z": (dtype, [])}, Y, scale)
    assert switched_off(given) == OFF  # it is not known here


def test_other_files_keep_them() -> None:
    assert switched_off(model(nodes_of([]), X, Y, {"s": np.float32(0.05)})) == []  # u8
    assert switched_off(model([node("Relu", ["x"], ["y"])], X, Y)) == []
    assert switched_off(b"QuantizeLinear, and no model") == OFF
