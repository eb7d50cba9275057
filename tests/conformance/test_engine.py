"""ONNX models on each session: read, executed where the operands are, with outputs of known and unknown extents."""

import json
from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import B, W, linear, linear_of, model, node

import callboard as cb
from callboard.kernel.engine import Build, EngineSpec, Execute, Release

onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
X = np.random.default_rng(1).standard_normal((5, 4)).astype("f4")


def served(session: Any) -> bool:
    """Whether the backend has the library.

    Raises:
        Skipped: It is CUDA's, and this build of ONNX Runtime is none for CUDA.
    """
    if session.backend.name == "cuda" and "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this build of ONNX Runtime has no CUDA provider")
    return "engine" in session.backend.libraries()


def loaded(session: Any, data: bytes, name: str, **more: Any) -> tuple[Any, EngineSpec]:
    return session.put(np.frombuffer(data, np.uint8)), EngineSpec("model", name, **more)


def test_a_model_is_described(session: Any) -> None:
    if not served(session):
        return
    ref, spec = loaded(session, linear(), "described")
    found = json.loads(bytes(session.get(session.submit(Build(model=ref, spec=spec)))))
    assert found["inputs"] == [["x", "tensor(float)", ["n", 4]]]
    assert found["outputs"] == [["y", "tensor(float)", ["n", 3]]]


@pytest.mark.parametrize("extent", [5, -1], ids=["known", "found"])
def test_a_model_is_executed(session: Any, extent: int) -> None:
    if not served(session):
        return
    more = {"inputs": ("x",), "outputs": ("y",), "layouts": (("f32", (extent, 3)),)}
    ref, spec = loaded(session, linear(), "executed", **more)
    (y,) = session.submit(Execute(model=ref, spec=spec, ins=(session.put(X),)))
    np.testing.assert_allclose(session.get(y), linear_of(X, W, B), rtol=1e-5, atol=1e-6)


def test_outputs_can_be_given(session: Any) -> None:
    if not served(session):
        return
    more = {"inputs": ("x",), "outputs": ("y",), "layouts": (("f32", (5, 3)),)}
    ref, spec = loaded(session, linear(), "given", **more)
    out = session.put(np.zeros((5, 3), "f4"))
    session.submit(Execute(model=ref, spec=spec, ins=(session.put(X),), outs=(out,)))
    np.testing.assert_allclose(session.get(out), linear_of(X), rtol=1e-5, atol=1e-6)


def test_what_the_engine_refuses_fails_the_op(session: Any) -> None:
    if not served(session):
        return
    data = model([node("Own", ["x"], ["y"], "my")], {"x": ("f32", [2])}, {"y": ("f32", [2])})
    ref, spec = loaded(session, data, "refused")
    with pytest.raises(cb.LibraryError, match="ONNX Runtime cannot read model"):
        session.get(session.submit(Build(model=ref, spec=spec)))
    more = {"inputs": ("x",), "outputs": ("y",), "layouts": (("f32", (5, 3)),)}
    ref, spec = loaded(session, linear(), "wrong shape", **more)
    with pytest.raises(cb.ShapeError, match=r"x is f32.*must have no gaps"):
        session.submit(Execute(model=ref, spec=spec, ins=(session.put(X)[:, ::-1],)))


def test_a_session_is_released_and_opened_again(session: Any) -> None:
    if not served(session):
        return
    more = {"inputs": ("x",), "outputs": ("y",), "layouts": (("f32", (5, 3)),)}
    ref, spec = loaded(session, linear(), "released", **more)
    for _ in range(2):
        session.submit(Release(spec=spec))
        (y,) = session.submit(Execute(model=ref, spec=spec, ins=(session.put(X),)))
        np.testing.assert_allclose(session.get(y), linear_of(X), rtol=1e-5, atol=1e-6)
