"""Binaries of the user's: loaded and launched on a GPU, refused by name on a CPU."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import callboard as cb
from callboard.kernel.module import Inspect, Launch, Link
from callboard.kernel.module.image import image_of
from callboard.kernel.module.methods import ModuleHandle
from callboard.kernel.nvrtc import Compile, Compiled, Source
from callboard.kernel.nvrtc.compile import inspected

TEXT = """
__device__ float twice(float);
extern "C" __global__ void doubled(const float *x, float *y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = twice(x[i]);
}
"""
PART = "__device__ float twice(float x) { return 2 * x; }"
WHOLE = PART + TEXT
PARAMS = "in x: f32[n], out y: f32[n], n: i32"


def handle(session: Any, *images: Any) -> Any:
    """A module whose messages the session executes."""
    fields = {"images": tuple(map(image_of, images)), "options": ()}
    return ModuleHandle(session.submit, Launch, Inspect, fields)


def compiled(session: Any, text: str, form: str) -> bytes:
    found = session.get(session.submit(Compile(source=Source(text), form=form)))
    return msgspec.msgpack.decode(found.tobytes(), type=Compiled).image


def on_gpu(session: Any) -> bool:
    """Whether there is one; on a CPU the ops are refused, with the reason."""
    if session.backend.name != "cpu":
        return True
    with pytest.raises(cb.UnsupportedOp, match="a CPU runs no binaries of a GPU"):
        handle(session, b"image").kernel("f", PARAMS)(1, 1, session.put(np.ones(3, "f4")), None)
    with pytest.raises(cb.UnsupportedOp, match="a CPU runs no binaries of a GPU"):
        session.submit(Link(images=(image_of(b"image"),)))
    with pytest.raises(cb.UnsupportedOp, match="a CPU has no compiler for CUDA C"):
        session.submit(Compile(source=Source(TEXT)))
    return False


@pytest.mark.parametrize("form", ["binary", "ptx"])
def test_a_binary_is_loaded(session: Any, form: str, tmp_path: Path) -> None:
    if not on_gpu(session):
        return
    image = compiled(session, WHOLE, form)
    file = tmp_path / "doubled.bin"
    file.write_bytes(image)
    x = np.arange(100, dtype="f4")
    for given in (image, file):
        module = handle(session, given)
        (y,) = session.submit(module.kernel("doubled", PARAMS).op(1, 128, session.put(x), None))
        np.testing.assert_array_equal(session.get(y), 2 * x)
    op = Inspect(name="doubled", images=(image_of(image),))
    attributes, occupancy = inspected(session.get(session.submit(op)).tolist())
    assert attributes.max_threads == 1024
    assert occupancy.occupancy > 0


def test_parts_are_linked(session: Any) -> None:
    if not on_gpu(session):
        return
    pytest.importorskip("cuda.bindings.nvjitlink")
    parts = [compiled(session, text, "ltoir") for text in (PART, TEXT)]
    cubin = session.get(session.submit(Link(images=tuple(map(image_of, parts))))).tobytes()
    x = np.arange(100, dtype="f4")
    for given in (parts, [cubin]):
        (y,) = session.submit(handle(session, *given).kernel("doubled", PARAMS).op(1, 128, session.put(x), None))
        np.testing.assert_array_equal(session.get(y), 2 * x)


def test_what_is_no_binary_is_refused(session: Any) -> None:
    if not on_gpu(session):
        return
    x = session.put(np.ones(3, "f4"))
    with pytest.raises(cb.LibraryError, match=r"is not a cubin, PTX, fatbin, LTO-IR or library"):
        session.submit(handle(session, b"what is this").kernel("f", PARAMS).op(1, 1, x, None))
    with pytest.raises(cb.LibraryError, match="image has no kernel other"):
        session.submit(handle(session, compiled(session, WHOLE, "binary")).kernel("other", PARAMS).op(1, 1, x, None))
