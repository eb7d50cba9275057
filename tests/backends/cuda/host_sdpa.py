"""A stand-in for NVIDIA's frontend of cuDNN, whose graphs of attention are executed on host memory.

Operands are found by what they were described with: steps, page tables, where packed sequences begin. What is behind a
sequence's length is left as it was, as cuDNN leaves it.
"""

import ctypes
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
from host_driver import HostDriver, array_at

from callboard.backends.cpu.lowprec import encode_f8
from callboard.core.dtype import DTYPES

Array = np.ndarray[Any, Any]
TYPES: dict[str, Any] = {
    "HALF": np.float16, "BFLOAT16": ml_dtypes.bfloat16, "FLOAT": np.float32, "INT32": np.int32,
    "FP8_E4M3": ml_dtypes.float8_e4m3fn, "FP8_E5M2": ml_dtypes.float8_e5m2,
}  # fmt: skip


class Named:
    """An enumeration: each name is itself."""

    def __getattr__(self, name: str) -> str:
        return name


class Tensor:
    """An operand: each ``set_x(value)`` is kept as ``x``."""

    def __init__(self, **told: Any) -> None:
        self.ragged_offset: Any = None
        self.uid = 0
        self.__dict__.update(told)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("set_"):
            raise AttributeError(name)
        kept = {"dim": "dim", "stride": "stride"}.get(name[4:], name[4:])
        return lambda value: self.__dict__.update({kept: value}) or self


class HostCudnn:
    """In place of the module ``cudnn``.

    Attributes:
        executed: Names of the nodes that were executed.
        planned: Graphs that engines were looked for.
        kept: Graphs that were serialised, by what was made of them.
        refuses: Says why a node has no engine, where it has none.
    """

    __version__ = "1.32.0"
    data_type = heur_mode = build_plan_policy = diagonal_alignment = Named()

    def __init__(self, driver: HostDriver) -> None:
        self._driver = driver
        self._streams: dict[int, int] = {}
        self._handles = 0
        self.executed: list[str] = []
        self.planned = 0
        self.refuses = ""
        self.kept: dict[bytes, Graph] = {}
        self._pybind_module = SimpleNamespace(backend_graph=lambda **told: Graph(self))

    def backend_version(self) -> int:
        return 91900

    def create_handle(self) -> Any:
        self._handles += 1
        return SimpleNamespace(backend_handle=self._handles)

    def set_stream(self, handle: Any, stream: int) -> None:
        self._streams[handle.backend_handle] = stream

    def destroy_handle(self, handle: Any) -> None:
        self._handles -= 1

    def run(self, node: "Node", addresses: dict[int, int], handle: int) -> None:
        """Execute a node on a handle's stream."""
        self.executed.append(node.name)
        self._driver._enqueued(node.name, self._streams[handle])
        Execution(node, addresses).run()


class Graph:
    """A graph with one node of attention."""

    def __init__(self, host: HostCudnn) -> None:
        self._host = host
        self._tensors: list[Tensor] = []
        self._node: Node | None = None

    def _make_tensor(self, **told: Any) -> Tensor:
        self._tensors.append(Tensor(**told))
        return self._tensors[-1]

    def _made(self, name: str, count: int, told: dict[str, Any]) -> list[Tensor]:
        found = [Tensor() for _ in range(count)]
        self._tensors += found
        self._node = Node(name, told, found)
        return found

    def sdpa(self, **told: Any) -> list[Tensor]:
        return self._made("sdpa", 2, told)

    def sdpa_backward(self, **told: Any) -> list[Tensor]:
        return self._made("sdpa_backward", 3, told)

    def sdpa_fp8(self, **told: Any) -> list[Tensor]:
        return self._made("sdpa_fp8", 4, told)

    def sdpa_fp8_backward(self, **told: Any) -> list[Tensor]:
        return self._made("sdpa_fp8_backward", 7, told)

    def check_support(self) -> None:
        if self._host.refuses:
            raise RuntimeError(f"NOT_SUPPORTED: {self._host.refuses}")

    def validate(self) -> None:
        assert self._node is not None

    def build_operation_graph(self) -> None: ...

    def create_execution_plans(self, modes: Any) -> None:
        self._host.planned += 1

    def serialize(self, as_bytes: bool) -> bytes:
        content = f"graph {len(self._host.kept)}".encode()
        self._host.kept[content] = self
        return content

    def deserialize(self, handle: int, content: bytes) -> None:
        other = self._host.kept[content]
        self._tensors, self._node = other._tensors, other._node

    def build_plans(self, policy: Any) -> None: ...

    def _prepare_variant_pack_template(self) -> None: ...

    def _get_variant_pack_uids_sorted(self) -> list[int]:
        return sorted(t.uid for t in self._tensors)

    def get_workspace_size(self) -> int:
        return 0

    def _execute_with_raw_ptrs(self, at: int, count: int, workspace: int, handle: int, index: int) -> None:
        assert self._node is not None
        given = (ctypes.c_void_p * count).from_address(at)
        self._host.run(self._node, dict(zip(self._get_variant_pack_uids_sorted(), given, strict=True)), handle)


class Node:
    """A node: its operands and settings by name, and what it makes."""

    def __init__(self, name: str, told: dict[str, Any], made: list[Tensor]) -> None:
        self.name, self.told, self.made = name, told, made


class Execution:
    """One execution of a node.

    Args:
        node: Which one.
        addresses: Of the operands, by uid.
    """

    def __init__(self, node: Node, addresses: dict[int, int]) -> None:
        self._node, self._addresses = node, addresses
        self._told = node.told
        self._q: Tensor = node.told["q"]

    def _whole(self, x: Tensor) -> Array:
        return array_at(self._addresses[x.uid], TYPES[x.data_type], tuple(x.dim), tuple(x.stride))

    def _item(self, x: Tensor, b: int, rows: int) -> Array:
        """``[heads, rows, dim]`` of a sequence."""
        _, heads, _, dim = x.dim
        if x.ragged_offset is None:
            first = b * x.stride[0]
        else:
            first = int(self._whole(x.ragged_offset).reshape(-1)[b])
        address = self._addresses[x.uid] + first * np.dtype(TYPES[x.data_type]).itemsize
        return array_at(address, TYPES[x.data_type], (heads, rows, dim), tuple(x.stride[1:]))

    def _keys(self, name: str, b: int, rows: int) -> Array:
        table = self._told.get(f"paged_attention_{name}_table")
        if table is None:
            return self._item(self._told[name], b, rows)
        pages, block = self._whole(self._told[name]), self._told[name].dim[2]
        chosen = self._whole(table)[b, 0, : -(-rows // block), 0]
        return pages[chosen].swapaxes(0, 1).reshape(pages.shape[1], -1, pages.shape[3])[:, :rows]

    def _number(self, name: str) -> float:
        return float(self._whole(self._told[name]).reshape(())) if name in self._told else 1.0

    def run(self) -> None:
        """All sequences."""
        told = self._told
        largest = np.zeros(len(self._node.made))
        for b in range(self._q.dim[0]):
            nq = int(self._whole(told["seq_len_q"])[b, 0, 0, 0]) if "seq_len_q" in told else self._q.dim[2]
            most = told.get("paged_attention_max_seq_len_kv", told["k"].dim[2])
            nk = int(self._whole(told["seq_len_kv"])[b, 0, 0, 0]) if "seq_len_kv" in told else most
            found = self._gradients(b, nq, nk) if "dO" in told else self._result(b, nq, nk)
            for at, (x, values, rows, scale) in enumerate(found):
                target = self._item(x, b, rows)
                largest[at] = max(largest[at], np.abs(values).max(initial=0))
                narrow = {"FP8_E4M3": "f8_e4m3", "FP8_E5M2": "f8_e5m2"}.get(x.data_type)
                target[...] = values if narrow is None else encode_f8(values * scale, DTYPES[narrow])
        if self._node.name == "sdpa_fp8":
            self._tell({3: largest[0], 2: 1.0})
        elif self._node.name == "sdpa_fp8_backward":
            self._tell({3: largest[0], 4: largest[1], 5: largest[2], 6: 0.0})

    def _tell(self, numbers: dict[int, float]) -> None:
        for at, number in numbers.items():
            self._whole(self._node.made[at])[...] = number

    def _scores(self, b: int, nq: int, nk: int) -> tuple[Array, Array, Array, Array]:
        told = self._told
        q = self._item(told["q"], b, nq).astype("f8") * self._number("descale_q")
        k, v = (self._keys(n, b, nk).astype("f8") * self._number(f"descale_{n}") for n in "kv")
        k, v = (np.repeat(x, len(q) // len(x), 0) for x in (k, v))
        scores = q @ k.swapaxes(1, 2) * told["attn_scale"]
        if "bias" in told:
            bias = self._whole(told["bias"])
            scores = scores + bias[min(b, bias.shape[0] - 1), :, :nq, :nk].astype("f8")
        shift = nk - nq if told.get("diagonal_alignment") == "BOTTOM_RIGHT" else 0
        away = np.arange(nk) - (np.arange(nq)[:, None] + shift)
        right = 0 if told.get("use_causal_mask") else told.get("diagonal_band_right_bound")
        left = told.get("diagonal_band_left_bound")
        seen = np.ones_like(away, bool) if right is None else away <= right
        if left is not None:
            seen &= away > -left
        return q, k, v, np.where(seen, scores, -np.inf)

    def _result(self, b: int, nq: int, nk: int) -> list[tuple[Tensor, Array, int, float]]:
        _, _, v, scores = self._scores(b, nq, nk)
        sink = np.full(len(scores), -np.inf)
        if "sink_token" in self._told:
            sink = self._whole(self._told["sink_token"]).reshape(-1).astype("f8")
        top = np.maximum(scores.max(-1, initial=-np.inf), sink[:, None])
        base = np.where(np.isfinite(top), top, 0)
        weights = np.exp(scores - base[..., None])
        total = weights.sum(-1) + np.exp(sink[:, None] - base)
        with np.errstate(divide="ignore"):
            lse = base + np.log(total)
        out = weights @ v / np.where(total == 0, 1, total)[..., None]
        o, stats = self._node.made[:2]
        return [(o, out, nq, self._number("scale_o")), (stats, lse[..., None], nq, 1.0)]

    def _gradients(self, b: int, nq: int, nk: int) -> list[tuple[Tensor, Array, int, float]]:
        told = self._told
        q, k, v, scores = self._scores(b, nq, nk)
        out = self._item(told["o"], b, nq).astype("f8") * self._number("descale_o")
        dout = self._item(told["dO"], b, nq).astype("f8") * self._number("descale_dO")
        lse = self._item(told["stats"], b, nq).astype("f8")
        p = np.exp(scores - np.where(np.isfinite(lse), lse, 0))
        ds = p * (dout @ v.swapaxes(1, 2) - (out * dout).sum(-1, keepdims=True)) * told["attn_scale"]
        dq, dk, dv = ds @ k, ds.swapaxes(1, 2) @ q, p.swapaxes(1, 2) @ dout
        heads = told["k"].dim[1]
        dk, dv = (x.reshape(heads, -1, *x.shape[1:]).sum(1) for x in (dk, dv))
        scales = (self._number(f"scale_d{n}") for n in "QKV")
        return list(zip(self._node.made[:3], (dq, dk, dv), (nq, nk, nk), scales, strict=True))
