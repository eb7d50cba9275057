"""Changes of an ONNX file: nodes around others, other inputs and outputs of nodes, further weights and outputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from callboard.kernel.engine.onnxfile import (
    field_bytes,
    fields_of,
    grouped,
    info_bytes,
    node_of,
    raw_field,
    tensor_bytes,
    text_of,
)

__all__ = ["Change", "Edit", "edited", "node_bytes"]

Array = np.ndarray[Any, Any]


@dataclass
class Change:
    """Of one node: nodes before and after it, and other names of its inputs and outputs, by their number."""

    before: list[bytes] = field(default_factory=list)
    after: list[bytes] = field(default_factory=list)
    inputs: dict[int, str] = field(default_factory=dict)
    outputs: dict[int, str] = field(default_factory=dict)


@dataclass
class Edit:
    """Of a file.

    Attributes:
        changes: By the number of the node.
        weights: Further initializers.
        shown: Values that become outputs, with their dtypes; in this order, after the model's own.
    """

    changes: dict[int, Change] = field(default_factory=dict)
    weights: dict[str, Array] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)


def edited(data: bytes, edit: Edit) -> bytes:
    """The file with changes; initializers and nodes that no node reads any more are left out."""
    out = []
    for number, wire, value in fields_of(memoryview(data)):
        out.append(field_bytes(7, _graph(value, edit)) if number == 7 else raw_field(number, wire, value))
    return b"".join(out)


def node_bytes(op: str, inputs: list[str], output: str, **attributes: int) -> bytes:
    """A `NodeProto` with attributes that are integers."""
    parts = [field_bytes(1, name) for name in inputs] + [field_bytes(2, output), field_bytes(4, op)]
    for name, value in attributes.items():
        parts.append(field_bytes(5, field_bytes(1, name) + field_bytes(3, value) + field_bytes(20, 2)))
    return b"".join(parts)


def _graph(graph: memoryview, edit: Edit) -> bytes:
    out: list[tuple[int, bytes]] = []
    at = 0
    for number, wire, value in fields_of(graph):
        if number != 1:
            out.append((number, raw_field(number, wire, value)))
            continue
        change = edit.changes.get(at)
        at += 1
        if change is None:
            out.append((1, raw_field(1, wire, value)))
            continue
        out += [(1, field_bytes(1, each)) for each in change.before]
        out.append((1, field_bytes(1, _node(value, change))))
        out += [(1, field_bytes(1, each)) for each in change.after]
    out += [(5, field_bytes(5, tensor_bytes(name, array))) for name, array in edit.weights.items()]
    out += [(12, field_bytes(12, info_bytes(name, dtype, None))) for name, dtype in edit.shown.items()]
    return b"".join(_used(out))


def _node(node: memoryview, change: Change) -> bytes:
    """The node with other names."""
    count, parts = {1: 0, 2: 0}, []
    for number, wire, value in fields_of(node):
        names = {1: change.inputs, 2: change.outputs}.get(number)
        if names is None:
            parts.append(raw_field(number, wire, value))
            continue
        other = names.get(count[number])
        parts.append(raw_field(number, wire, value) if other is None else field_bytes(number, other))
        count[number] += 1
    return b"".join(parts)


def _used(fields: list[tuple[int, bytes]]) -> list[bytes]:
    """The fields of a graph without the weights that nothing reads."""
    from callboard.kernel.engine.mapped.steps import graphs_of, names_read

    read: set[str] = set()
    contents = [(number, next(fields_of(memoryview(each)))[2], each) for number, each in fields]
    for number, value, _ in contents:
        if number == 1:
            node = node_of(value)
            read.update(node.inputs)
            for inner in graphs_of(node):
                read |= names_read(inner)
        elif number == 12:
            read.add(text_of(grouped(value), 1))
    return [each for number, value, each in contents if number != 5 or text_of(grouped(value), 8) in read]
