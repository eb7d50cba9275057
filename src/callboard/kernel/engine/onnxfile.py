"""ONNX files, read and changed without the package ``onnx``.

A file is a protobuf message (`onnx.proto` of github.com/onnx/onnx). Only the fields that are needed are interpreted;
all others are kept as they are. Everything is checked against the length of the file, so damaged or hostile bytes
raise :class:`OnnxError`.
"""

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from callboard.core.dtype import DTYPES
from callboard.kernel.engine.files.outside import with_contents
from callboard.kernel.engine.files.protobuf import (
    OnnxError,
    field_bytes,
    fields_of,
    grouped,
    raw_field,
    text_of,
    varint,
)

__all__ = [
    "Graph",
    "Model",
    "Node",
    "OnnxError",
    "ValueInfo",
    "field_bytes",
    "fields_of",
    "grouped",
    "info_bytes",
    "model_of",
    "node_of",
    "raw_field",
    "tensor_bytes",
    "text_of",
    "with_weights",
]

Array = np.ndarray[Any, Any]
ELEMENTS = {
    1: "f32",
    2: "u8",
    3: "i8",
    4: "u16",
    5: "i16",
    6: "i32",
    7: "i64",
    9: "bool",
    10: "f16",
    11: "f64",
    12: "u32",
    13: "u64",
    14: "c64",
    15: "c128",
    16: "bf16",
    17: "f8_e4m3",
    19: "f8_e5m2",
}
"""Dtypes by ONNX's codes of element types."""
CODES = {name: code for code, name in ELEMENTS.items()}
DEEPEST = 32
MOST_NODES = 1 << 16
"""Nodes of a model, those of graphs in nodes included."""
MOST_PORTS = 1 << 12
"""Inputs of a graph that are no initializers, and outputs."""


@dataclass(frozen=True)
class ValueInfo:
    """An input or output of a graph.

    Attributes:
        name: Its name.
        dtype: Name of the dtype; None if it is no tensor of a dtype that refs have.
        shape: A number, a symbol, or None for each extent; None if not even the number of axes is declared.
        kind: What it is, in words, if ``dtype`` is None.
    """

    name: str
    dtype: str | None
    shape: tuple[int | str | None, ...] | None
    kind: str = ""


class Node(msgspec.Struct, frozen=True, gc=False):  # thousands, which collections of garbage would go through
    """One operator: names of inputs and outputs ("" for those left out), and attributes by name."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]

    @property
    def title(self) -> str:
        """The operator with its domain."""
        return f"{self.domain}.{self.op}" if self.domain not in ("", "ai.onnx") else self.op


@dataclass(frozen=True)
class Graph:
    """Nodes in order, initializers by name, inputs that are no initializers, outputs."""

    nodes: list[Node]
    initializers: dict[str, Array]
    inputs: list[ValueInfo]
    outputs: list[ValueInfo]

    def __repr__(self) -> str:
        return f"<graph of {len(self.nodes)} nodes and {len(self.initializers)} initializers>"


@dataclass(frozen=True)
class Model:
    """A model: its graph, and the version of each domain of operators."""

    graph: Graph
    opsets: dict[str, int]
    functions: list[str] = field(default_factory=list)

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return self.opsets.get("", self.opsets.get("ai.onnx", 0))


def model_of(data: bytes) -> Model:
    """Read a model.

    Raises:
        OnnxError: The bytes are no model, or it has more than 65536 nodes, or 4096 inputs or outputs, or a tensor of it
            is in another file, or two inputs or two outputs have the same name, or one has none; says what is wrong.
    """
    try:
        with_contents(data, None)
        parts = grouped(memoryview(data))
        graphs = parts.get(7, [])
        if len(graphs) != 1 or not parts.get(8):
            raise OnnxError("it has no graph or no version of operators")
        opsets = {}
        for entry in map(grouped, parts[8]):
            opsets[text_of(entry, 1)] = _number(entry, 2)
        model = Model(
            _graph(graphs[0], 0, [MOST_NODES]), opsets, [text_of(grouped(each), 1) for each in parts.get(25, [])]
        )
    except OnnxError as e:
        raise OnnxError(f"this is no ONNX model: {e}") from None
    except (ValueError, TypeError, IndexError, struct.error, UnicodeDecodeError, OverflowError, MemoryError) as e:
        raise OnnxError(f"this is no ONNX model: {type(e).__name__}: {e}") from None
    _check_names("input", model.graph.inputs)
    _check_names("output", model.graph.outputs)
    return model


def _check_names(kind: str, infos: Sequence[ValueInfo]) -> None:
    """Refuse names that do not tell one input or output from another: engines bind arrays by name."""
    names = [each.name for each in infos]
    if "" in names:
        raise OnnxError(f"{kind} {names.index('')} of the graph has no name; give it one in the model")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        cure = "leave one out" if kind == "input" else "leave one out, or pass it through an Identity node"
        raise OnnxError(f"the graph has the {kind} {twice[0]!r} twice; {cure}")


def with_weights(data: bytes, weights: dict[str, Array], as_inputs: bool) -> bytes:
    """The file with other initializers: with these values, or as inputs of the graph.

    Args:
        data: The file.
        weights: New values by name; other initializers stay.
        as_inputs: True: the named initializers become inputs, so that each execution is given them.
    """
    out = []
    for number, wire, value in fields_of(memoryview(data)):
        out.append(
            field_bytes(7, _graph_with(value, weights, as_inputs)) if number == 7 else raw_field(number, wire, value)
        )
    return b"".join(out)


def _graph_with(graph: memoryview, weights: dict[str, Array], as_inputs: bool) -> bytes:
    out = []
    for number, wire, value in fields_of(graph):
        name = text_of(grouped(value), {5: 8, 11: 1}[number]) if number in (5, 11) else ""
        if name not in weights:
            out.append(raw_field(number, wire, value))
        elif number == 5 and not as_inputs:
            out.append(field_bytes(5, tensor_bytes(name, weights[name])))
        elif number == 11 and not as_inputs:
            out.append(raw_field(number, wire, value))
    if as_inputs:
        for name, array in weights.items():
            out.append(field_bytes(11, info_bytes(name, DTYPES_OF[array.dtype], array.shape)))
    return b"".join(out)


DTYPES_OF = {DTYPES[name].np: name for name in CODES}


def tensor_bytes(name: str, array: Array) -> bytes:
    """A `TensorProto`."""
    dims = b"".join(field_bytes(1, n) for n in array.shape)
    code = field_bytes(2, CODES[DTYPES_OF[array.dtype]])
    return dims + code + field_bytes(8, name) + field_bytes(9, np.ascontiguousarray(array).tobytes())


def info_bytes(name: str, dtype: str, shape: Sequence[int | str] | None) -> bytes:
    """A `ValueInfoProto`; extents with names are open. None: not even the number of axes is declared."""
    kind = field_bytes(1, CODES[dtype])
    if shape is not None:
        dims = (field_bytes(1, field_bytes(1 if isinstance(n, int) else 2, n)) for n in shape)
        kind += field_bytes(2, b"".join(dims))
    return field_bytes(1, name) + field_bytes(2, field_bytes(1, kind))


def _number(parts: dict[int, list[Any]], number: int, default: int = 0) -> int:
    value = int(parts[number][-1]) if number in parts else default
    return value - (1 << 64) if value >> 63 else value


def _numbers(parts: dict[int, list[Any]], number: int) -> list[int]:
    """Repeated integers, packed or not."""
    found = []
    for value in parts.get(number, []):
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            one, at = varint(value, at)
            found.append(one)
    return [each - (1 << 64) if each >> 63 else each for each in found]


def _floats(parts: dict[int, list[Any]], number: int, code: str = "<f4") -> Array:
    return np.frombuffer(b"".join(bytes(each) for each in parts.get(number, [])), code)


def _graph(data: memoryview, depth: int, room: list[int]) -> Graph:
    if depth > DEEPEST:
        raise OnnxError(f"graphs are nested deeper than {DEEPEST}")
    nodes: list[Node] = []

    def read(content: Any) -> None:  # each at once: so many parts of messages would slow down collections of garbage
        room[0] -= 1
        if room[0] < 0:
            raise OnnxError(f"it has more than {MOST_NODES} nodes")
        nodes.append(node_of(content, depth, room))

    parts = grouped(data, {1: read})
    ports = len(parts.get(11, [])) - len(parts.get(5, [])) - len(parts.get(15, []))
    for what, count in (("inputs", ports), ("outputs", len(parts.get(12, [])))):
        if count > MOST_PORTS:
            raise OnnxError(f"a graph has {count} {what}, at most {MOST_PORTS} are taken; join some to one tensor")
    initializers = {}
    for each in map(grouped, parts.get(15, [])):  # sparse: their values have the name
        initializers[text_of(grouped(each[1][-1]), 8)] = np.empty(0, object)
    for each in map(grouped, parts.get(5, [])):
        initializers[text_of(each, 8)] = _tensor(each)
    inputs = [info for info in map(_info, parts.get(11, [])) if info.name not in initializers]
    return Graph(nodes, initializers, inputs, [_info(each) for each in parts.get(12, [])])


def node_of(data: memoryview, depth: int = 0, room: list[int] | None = None) -> Node:
    """The node of a `NodeProto`, which lies in as many graphs; ``room``: for how many more nodes there is room."""
    room = [MOST_NODES] if room is None else room
    parts = grouped(data)
    names = [tuple(bytes(each).decode() for each in parts.get(number, [])) for number in (1, 2)]
    attributes = {}
    for each in map(grouped, parts.get(5, [])):
        attributes[text_of(each, 1)] = _attribute(each, depth, room)
    return Node(text_of(parts, 4), text_of(parts, 7), text_of(parts, 3), names[0], names[1], attributes)


def _attribute(parts: dict[int, list[Any]], depth: int, room: list[int]) -> Any:
    kind = _number(parts, 20)
    if kind == 1:
        return float(np.frombuffer(bytes(parts[2][-1]), "<f4")[0]) if 2 in parts else 0.0
    if kind == 2:
        return _number(parts, 3)
    if kind == 3:
        return bytes(parts.get(4, [b""])[-1])
    if kind == 4:
        return _tensor(grouped(parts[5][-1]))
    if kind == 5:
        return _graph(parts[6][-1], depth + 1, room)
    if kind == 6:
        return [float(each) for each in _floats(parts, 7)]
    if kind == 7:
        return _numbers(parts, 8)
    if kind == 8:
        return [bytes(each) for each in parts.get(9, [])]
    return OnnxError(f"attributes of kind {kind} are not supported")  # of a node that may never be mapped


def _info(data: memoryview) -> ValueInfo:
    parts = grouped(data)
    name = text_of(parts, 1)
    kind = grouped(parts[2][-1]) if 2 in parts else {}
    if 1 not in kind:
        words = {4: "a sequence", 5: "a map", 8: "a sparse tensor", 9: "optional"}
        return ValueInfo(name, None, None, next((words[n] for n in kind if n in words), "of no declared type"))
    tensor = grouped(kind[1][-1])
    code = _number(tensor, 1)
    dtype = ELEMENTS.get(code)
    what = "" if dtype else ("a tensor of strings" if code == 8 else f"a tensor of the element type {code}")
    if 2 not in tensor:
        return ValueInfo(name, dtype, None, what)
    shape: list[int | str | None] = []
    for dim in map(grouped, grouped(tensor[2][-1]).get(1, [])):
        shape += [_number(dim, 1) if 1 in dim else (text_of(dim, 2) or None)]
    return ValueInfo(name, dtype, tuple(None if isinstance(n, int) and n < 0 else n for n in shape), what)


def _tensor(parts: dict[int, list[Any]]) -> Array:
    """The array of a `TensorProto`; an array of objects if its dtype has no refs."""
    name, code, shape = text_of(parts, 8), _number(parts, 2), tuple(_numbers(parts, 1))
    if _number(parts, 14):
        raise OnnxError(f"{name!r} is in another file, of no name; pass a model that contains its weights")
    if code not in ELEMENTS:
        return np.empty(0, object)
    dtype = DTYPES[ELEMENTS[code]].np
    size = 1
    for n in shape:
        if n < 0:
            raise OnnxError(f"{name!r} has the extent {n}")
        size *= n
    if 9 in parts:
        raw = parts[9][-1]  # not copied: a model can be large
        if len(raw) != size * dtype.itemsize:
            raise OnnxError(f"{name!r} has {len(raw)} bytes, its shape {list(shape)} needs {size * dtype.itemsize}")
        return np.frombuffer(raw, dtype).reshape(shape)
    name_of = ELEMENTS[code]
    if name_of in ("f32", "c64"):
        array = _floats(parts, 4).view(dtype)
    elif name_of in ("f64", "c128"):
        array = _floats(parts, 10, "<f8").view(dtype)
    elif name_of == "i64":
        array = np.array(_numbers(parts, 7), np.int64)
    elif name_of in ("u32", "u64"):
        array = np.array([n & (1 << 64) - 1 for n in _numbers(parts, 11)], np.uint64).astype(dtype)
    elif name_of in ("f16", "bf16"):
        array = np.array(_numbers(parts, 5), np.int64).astype(np.uint16).view(dtype)
    elif name_of.startswith("f8"):
        array = np.array(_numbers(parts, 5), np.int64).astype(np.uint8).view(dtype)
    else:
        array = np.array(_numbers(parts, 5), np.int64).astype(dtype)
    if array.size != size:
        raise OnnxError(f"{name!r} has {array.size} elements, its shape {list(shape)} needs {size}")
    return array.reshape(shape)
