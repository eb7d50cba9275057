"""Long JSON is read and written in pieces, or refused: other requests are answered meanwhile."""

import json
import threading
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serve_lab import X, Y, client_of, tensor

from callboard.serve import App, Tensor, edge, inference
from callboard.serve.encoding import flat, payload, results
from callboard.serve.encoding.messages import encoded, parsed
from callboard.serve.errors import BadRequest

COUNT = flat.LONG // 4
"""Values of a list that is long enough to be cut out."""


def request_of(datatype: str, data: str, count: int, before: str = "") -> bytes:
    head = f'{{"inputs": [{before}{{"name": "x", "shape": [{count}], "datatype": "{datatype}", "data" : '
    return f"{head}{data}}}]}}".encode()


def read(body: bytes, datatype: str = "FP32", *more: Tensor) -> Any:
    return parsed(memoryview(body), None, [Tensor("x", datatype, [-1]), *more], X).arrays


@pytest.mark.parametrize(
    "datatype, values",
    [
        ("FP32", [0.5, -1e3, 2.0] * COUNT),
        ("FP64", [1e-300, float("nan"), float("inf"), -float("inf")] * COUNT),
        ("INT64", [-(2**63), 2**63 - 1] * COUNT),
        ("UINT64", [2**64 - 1, 0] * COUNT),
        ("BOOL", [True, False] * COUNT),
    ],
)
def test_a_long_flat_list_is_read_as_a_short_one(datatype: str, values: list[Any]) -> None:
    for indent in (None, 1):
        body = request_of(datatype, json.dumps(values, indent=indent), len(values))
        (found,) = read(body, datatype)
        assert np.array_equal(found, np.array(values, found.dtype), equal_nan=datatype == "FP64")


def test_lists_that_stay_in_the_text() -> None:
    texts = json.dumps(tensor("t", "BYTES", [2], ['"data":[1', "]" * flat.LONG]))
    nested = json.dumps([[1.5, 2.5]] * (flat.LONG // 8))
    body = request_of("FP32", nested, 2 * (flat.LONG // 8), texts + ",").replace(
        b'"shape": [65536]', b'"shape": [32768, 2]'
    )
    tensors = [Tensor("x", "FP32", [-1, 2]), Tensor("t", "TEXT", [-1])]
    x, t = parsed(memoryview(body), None, tensors, X).arrays
    assert x.shape == (flat.LONG // 8, 2)
    assert t.tolist() == ['"data":[1', "]" * flat.LONG]


LONG = ",".join(["1"] * 2 * COUNT)


@pytest.mark.parametrize(
    "data, says",
    [
        (f"[{LONG},]", "data is no list of numbers"),
        (f"[{LONG},{' ' * 100_000}]", "data is no list of numbers"),
        (f"[{LONG},,{LONG}]", "data is no list of numbers"),
        (f"[{LONG},1x,{LONG}]", "data is no list of numbers"),
        (f"[{LONG},{'1' * 100_000},{LONG}]", "data is no list of numbers: there is no comma"),
        (f"[{LONG},null]", "data must be numbers"),
        (f"[{LONG},1e999]", "data is no list of numbers"),
        (f"[{LONG}]", f"has {2 * COUNT} values, but its shape [{2 * COUNT + 1}] has {2 * COUNT + 1}"),
        (f"[{LONG}", "the body is not an inference request"),
        ('{"": 0}', "data must be a list"),
    ],
)
async def test_long_lists_that_are_refused(data: str, says: str) -> None:
    app = App()
    app.add_model("m", lambda x: x, inputs=X, outputs=Y)
    body = request_of("FP32", data, 2 * COUNT + 1)
    async with client_of(app) as http:
        found = await http.post("/v2/models/m/infer", content=body + b" " * flat.LONG)
    assert found.status_code == 400
    assert says in found.json()["error"]


@given(st.lists(st.integers(0, 99) | st.floats(allow_nan=False, allow_infinity=False), min_size=1), st.integers(8, 64))
def test_pieces_join_to_the_list(values: list[Any], size: int) -> None:
    text = json.dumps(values).encode()[1:-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flat, "PIECE", max(size, 32))
        found = [each for piece in flat.pieces(memoryview(text)) for each in json.loads(piece)]
    assert found == values


async def test_what_is_read_at_once_is_limited() -> None:
    app = App()
    app.add_model("m", lambda x: x, inputs=[Tensor("x", "FP32", [-1, 2])], outputs=[Tensor("y", "FP32", [-1, 2])])
    app.add_embeddings("e", lambda texts: texts)
    app.add_route("/sum", sum, request=list[int], response=int)
    long = msgspec.json.encode({"model": "e", "input": "x" * flat.MOST})
    lists = msgspec.json.encode({"model": "e", "input": [[12345]] * (flat.MOST_VALUES // 3)})
    many = b"[" + b"1," * flat.MOST_VALUES + b"1,1]"
    nested = request_of("FP32", f"[{'[1,2],' * flat.MOST_VALUES}[1,2]]", 2)
    async with client_of(app) as http:
        for path, body, cure in (
            ("/v1/embeddings", long, "send less"),
            ("/v1/embeddings", lists, "send less"),
            ("/sum", many, "send less"),
            ("/v2/models/m/infer", nested, "send tensors as raw data"),
        ):
            found = await http.post(path, content=body)
            assert found.status_code == 413
            assert cure in found.text


async def test_long_bodies_of_other_routes_are_read_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App()
    app.add_embeddings("e", lambda texts: [[1.0] for _ in texts])
    where: list[threading.Thread] = []
    monkeypatch.setattr(edge, "check_length", lambda *_: where.append(threading.current_thread()))
    async with client_of(app) as http:
        for texts in (["a"], ["a" * 100_000]):
            for path in ("/v1/embeddings", "/v1/completions", "/v1/chat/completions"):
                await http.post(path, json={"model": "e", "input": texts, "prompt": texts, "messages": []})
    assert [each is threading.main_thread() for each in where] == [True] * 3 + [False] * 3


async def test_long_work_is_done_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App()
    app.add_model("m", lambda x: np.repeat(x, 2), inputs=X, outputs=Y)
    where: list[threading.Thread] = []

    def noting(real: Any) -> Any:
        def noted(*arguments: Any) -> Any:
            where.append(threading.current_thread())
            return real(*arguments)

        return noted

    for module, name in ((payload, "_numbers_of"), (results, "to_json")):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    values = np.random.default_rng(0).random(40_000, np.float32).tolist()
    async with client_of(app) as http:
        found = await http.post("/v2/models/m/infer", json={"inputs": [tensor("x", "FP32", [40_000], values)]})
    assert found.json()["outputs"][0]["data"] == np.repeat(np.array(values, "f4"), 2).tolist()
    assert len(where) > 3
    assert threading.main_thread() not in where


def written(outputs: list[Tensor], arrays: list[Any], *, raw: bool = False) -> tuple[list[Any], bytes]:
    """The parts of a response, and all of it."""
    body = json.dumps({"inputs": [], "parameters": {"binary_data_output": raw}}).encode()
    asked = parsed(memoryview(body), None, [], outputs)
    parts, _ = encoded("m", "1", asked, {each.name: array for each, array in zip(outputs, arrays, strict=True)})
    return parts, b"".join(parts)


def test_all_outputs_together_have_the_bound_of_what_is_written_at_once() -> None:
    outputs = [Tensor(f"y{i}", "FP32", [-1]) for i in range(40)]
    arrays = [np.full(10_000, i + 0.25, np.float32) for i in range(40)]
    parts, body = written(outputs, arrays)
    assert max(map(len, parts)) < len(body) / 4
    assert [each["data"][-1] for each in json.loads(body)["outputs"]] == [i + 0.25 for i in range(40)]


TEXTS: dict[str, list[str | bytes]] = {
    "one": ["a" * 4 * flat.LONG],
    "characters of several bytes": ["a" + "é€😀" * flat.PIECE, ("a" + "é€😀" * flat.PIECE).encode()],
    "escapes": ['\x01"\n' * flat.LONG, "", 'b"'],
    "many": ["a", b"\n", ""] * 40_000,
    "half of a pair": ["a" * flat.PIECE + "\ud800", "\ud800", "b" * 4 * flat.LONG],
}


@pytest.mark.parametrize("name", TEXTS)
def test_long_texts_are_written_in_pieces(name: str) -> None:
    values = TEXTS[name]
    array = np.array([*values, None], object)[:-1]
    plain = [each if isinstance(each, bytes) else each.encode(errors="replace") for each in values]
    tensor = Tensor("y", "BYTES", [-1])
    parts, body = written([tensor], [array])
    assert json.loads(body)["outputs"][0]["data"] == [each.decode() for each in plain]
    assert max(map(len, parts)) <= 6 * flat.PIECE + flat.LONG
    parts, body = written([tensor], [array], raw=True)
    raw = b"".join(len(each).to_bytes(4, "little") + each for each in plain)
    assert body.endswith(b"}]}" + raw)
    assert max(map(len, parts)) <= 4 * flat.PIECE + flat.LONG


def test_a_long_text_that_ends_within_a_character() -> None:
    for wrong in (b"a" * flat.LONG + b"\xc3", b"\xff" + b"a" * flat.LONG):
        with pytest.raises(BadRequest, match="output 'y' is not UTF-8 text"):
            written([Tensor("y", "BYTES", [-1])], [np.array([wrong], object)])


async def test_texts_are_as_long_as_what_they_contain(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App()
    text = [Tensor("y", "TEXT", [-1])]
    results_of = {1.0: ["a" * 100_000], 2.0: ["a"] * 10_000, 3.0: ["a" * 1000]}
    app.add_model("m", lambda x: np.array(results_of[float(x[0])], object), inputs=X, outputs=text)
    where: list[threading.Thread] = []

    def noted(*arguments: Any) -> Any:
        where.append(threading.current_thread())
        return encoded(*arguments)

    monkeypatch.setattr(inference, "encoded", noted)
    async with client_of(app) as http:
        for number, texts in results_of.items():
            for raw in (False, True):
                asked = {"inputs": [tensor("x", "FP32", [1], [number])], "parameters": {"binary_data_output": raw}}
                found = await http.post("/v2/models/m/infer", json=asked)
                assert raw or found.json()["outputs"][0]["data"] == texts
    assert [each is threading.main_thread() for each in where] == [False] * 4 + [True] * 2
