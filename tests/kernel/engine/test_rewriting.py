"""Files with weights in other files, and with fewer outputs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import W, model, node

import callboard as cb
from callboard.kernel.engine.files.rewriting import whole, with_outputs
from callboard.kernel.engine.onnxfile import OnnxError, field_bytes, fields_of, model_of, raw_field, tensor_bytes


def linear() -> bytes:
    return model([node("MatMul", ["x", "w"], ["y"])], {"x": ("f32", ["n", 4])}, {"y": ("f32", ["n", 3])}, {"w": W})


def outside(data: bytes, **entries: str) -> bytes:
    """The file with its weight in another one."""

    def graph(content: Any) -> bytes:
        parts = [raw_field(*each) for each in fields_of(content) if each[0] != 5]
        head = [each for each in fields_of(memoryview(tensor_bytes("w", W))) if each[0] != 9]
        pairs = [field_bytes(13, field_bytes(1, key) + field_bytes(2, text)) for key, text in entries.items()]
        return b"".join(
            [*parts, field_bytes(5, b"".join([*(raw_field(*each) for each in head), *pairs, field_bytes(14, 1)]))]
        )

    return b"".join(
        field_bytes(7, graph(value)) if number == 7 else raw_field(number, wire, value)
        for number, wire, value in fields_of(memoryview(data))
    )


async def test_weights_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(outside(linear(), location="net.data", offset="8", length=str(W.nbytes)))
    (tmp_path / "net.data").write_bytes(b"8 bytes." + W.tobytes() + b"more")
    x = np.ones((2, 4), "f4")
    async with cb.device("cpu") as dev:
        y = await dev.engine.context(await dev.engine.build(path, engine="callboard"))(x=x).get()
    np.testing.assert_allclose(y, x @ W, rtol=1e-6)
    with pytest.raises(OnnxError, match=r"'w' is in another file, 'net\.data'"):
        model_of(path.read_bytes())


@pytest.mark.parametrize(
    "entries, words",
    [
        ({"location": "../net.data"}, "it is not beside the model"),
        ({"location": "/etc/hostname"}, "it is not beside the model"),
        ({"location": "none"}, "cannot be read"),
        ({"location": "net.data", "offset": "x"}, "cannot be read"),
        ({"location": "net.data", "offset": "-4"}, "cannot be read"),
        ({"location": "net.data", "length": "99"}, "99 bytes are needed from 0 on .* and 5 are there"),
        ({"location": "net.data", "length": str(2**62)}, "cannot be read: .* and 5 are there"),
        ({"location": "net.data", "offset": str(2**70), "length": "4"}, "cannot be read: .* and 0 are there"),
        ({"location": "net.data\0x"}, r"net.data.x00x', which cannot be read"),
        ({"location": "."}, "is a folder; pass a regular file"),
    ],
)
def test_weights_that_are_not_there(tmp_path: Path, entries: dict[str, str], words: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for place in (tmp_path, folder):
        (place / "net.data").write_bytes(b"short")
    (folder / "net.onnx").write_bytes(outside(linear(), **entries))
    with pytest.raises(OnnxError, match=words):
        whole(folder / "net.onnx")


def test_outputs_are_left_out() -> None:
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["y"])]
    shown: Any = {"m": ("f32", ["n", 3]), "y": ("f32", ["n", 3])}
    data = model(nodes, {"x": ("f32", ["n", 4])}, shown, {"w": W})
    assert [each.name for each in model_of(with_outputs(data, ["y"])).graph.outputs] == ["y"]
