"""Graph descriptions passed to cuDNN, and the node named if no engine exists, on a recording frontend."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from callboard.backends.cuda.dnn.frontend import GraphBuilder, reasons
from callboard.backends.cuda.dnn.graphs import Description, GraphPlan
from callboard.core.dtype import DTYPES
from callboard.core.errors import UnsupportedOp
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.dnn import Fused, Fusion

SETTINGS = {"layout": "NCHW", "tf32": False, "deterministic": False, "autotune": False}


class Tensor(SimpleNamespace):
    """A tensor of a graph: each ``set_x(value)`` is kept as ``x``."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("set_"):
            raise AttributeError(name)
        return lambda value: self.__dict__.update({name[4:]: value}) or self


class Told:
    """A graph of the frontend."""

    def __init__(self) -> None:
        self.inputs: list[Tensor] = []
        self.nodes: list[tuple[str, Tensor, dict[str, Any]]] = []

    def _make_tensor(self, **told: Any) -> Tensor:
        made = Tensor(**told)
        if not told.get("is_pass_by_value"):
            self.inputs.append(made)
        return made

    def __getattr__(self, name: str) -> Any:
        def node(*given: Any, **settings: Any) -> Any:
            made = Tensor()
            self.nodes.append((name, made, settings))
            return [made] if "norm" in name else made

        return node


class Named:
    """A module: each name is itself."""

    def __getattr__(self, name: str) -> Any:
        return Named() if name.islower() else name


def array(*shape: int, dtype: str = "f16") -> Any:
    return Placeholder(layout_of(DTYPES[dtype], shape))


def graph(build: Callable[[Any], None], **settings: Any) -> Fused:
    made: list[Fused] = []
    with Fusion[Any](made.append, SETTINGS | settings) as f:
        build(f)
    return made[0]


def told(op: Fused) -> tuple[Told, list[tuple[list[int], list[int]]]]:
    raw = Told()
    Description(op)(GraphBuilder(Named(), raw))
    return raw, [(x.dim, x.stride) for x in raw.inputs]


def test_images_have_their_channels_second() -> None:
    raw, inputs = told(
        graph(lambda f: f.output(f.relu(f.conv(array(2, 5, 16), array(8, 3, 16), padding=1) + array(8))), layout="NHWC")
    )
    assert inputs == [
        ([2, 16, 1, 5], [80, 1, 80, 16]),
        ([8, 16, 1, 3], [48, 1, 48, 16]),
        ([1, 8, 1, 1], [8, 1, 8, 8]),
    ]
    assert [name for name, _, _ in raw.nodes] == ["conv_fprop", "add", "relu"]
    assert raw.nodes[0][2] == {"pre_padding": [0, 1], "post_padding": [0, 1], "stride": [1, 1], "dilation": [1, 1]}
    (_, sums, _), _, (_, last, _) = raw.nodes
    assert sums.data_type == "FLOAT"
    assert (last.uid, last.output, last.data_type, last.dim) == (4, True, "HALF", [2, 8, 1, 5])


def test_matrices_have_one_batch_and_factors_are_rounded() -> None:
    raw, inputs = told(graph(lambda f: f.output(f.matmul(f.relu(array(2, 3, 4, 8)), array(2, 3, 8, 6)))))
    assert inputs == [([6, 4, 8], [32, 8, 1]), ([6, 8, 6], [48, 6, 1])]
    assert raw.nodes[0][1].data_type == "HALF"
    assert raw.nodes[1][1].dim == [6, 4, 6]


def test_rows_of_norms_and_means() -> None:
    _, inputs = told(graph(lambda f: f.output(f.rms_norm(array(2, 3, 8), array(8)))))
    assert inputs == [([6, 8, 1, 1], [8, 1, 8, 8]), ([1, 8, 1, 1], [8, 1, 8, 8])]
    op = graph(lambda f: f.output(f.mean(array(4, 8), -1), "f32"))
    Description(op)(g := GraphBuilder(Named(), Told()))
    assert g.scalars == [1 / 8]
    raw, _ = told(op)
    assert [name for name, _, _ in raw.nodes] == ["mul", "reduction"]
    assert raw.nodes[1][1].dim == [4, 1, 1, 1]


def test_rows_that_cannot_be_told() -> None:
    with pytest.raises(UnsupportedOp, match=r"but for the last 1 its axes must be 1, or all be those of .* \(2, 3\)"):
        told(graph(lambda f: f.output(f.sum(f.mul(array(2, 3, 8), array(2, 1, 8)), -1), "f32")))
    whole = layout_of(DTYPES["f16"], (2, 3, 8), (100, 8, 1))
    with pytest.raises(UnsupportedOp, match="rows do not follow each other"):
        told(graph(lambda f: f.output(f.sum(Placeholder(whole), -1), "f32")))


class Engines:
    """A frontend with engines for graphs without some nodes."""

    def __init__(self, lacks: set[str], cores: bool = True) -> None:
        self.lacks, self.cores = lacks, cores

    def why_not(self, describe: Description, tag: str, compute: Any, tensor_cores: bool) -> str | None:
        raw = Told()
        describe(GraphBuilder(Named(), raw))
        names = {name for name, _, _ in raw.nodes}
        if names & self.lacks:
            return f"there is no {min(names & self.lacks)}"
        return None if tensor_cores or not self.cores else "tensor cores only"

    def plan(self, describe: Any, key: bytes, tag: str, *, compute: Any, tensor_cores: bool, **_: Any) -> Any:
        raise UnsupportedOp("not at all")


def test_the_first_node_without_an_engine_is_named() -> None:
    op = graph(lambda f: f.output(f.exp(f.sin(f.matmul(array(4, 8), array(8, 4)) * 2.0))))
    library: Any = SimpleNamespace(frontend=Engines({"sin"}))
    with pytest.raises(
        UnsupportedOp, match=r"no engine for node 3 \(sin of node 2\) .* before it: there is no sin; store"
    ):
        GraphPlan(library, op)
    wide = graph(lambda f: f.output(f.matmul(f.relu(array(4, 8, dtype="f32")), array(8, 4, dtype="f32"))))
    library.frontend = Engines(set())
    with pytest.raises(UnsupportedOp, match=r"node 1 \(matmul of node 0, operand 1\) .*with tf32=True, which rounds"):
        GraphPlan(library, wide)


def test_the_reasons_of_cudnn() -> None:
    text = (
        "No valid engine configs for x\n"
        "Warning: CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH; Reason: only on another GPU\n"
        "Warning: CUDNN_STATUS_NOT_SUPPORTED_LAYOUT; Reason: !is_NHWC at: somewhere\n"
        "Warning: CUDNN_STATUS_NOT_SUPPORTED_LAYOUT; Reason: check_conv_support(node)\n"
    )
    assert reasons(text) == "!is_NHWC"
    assert "round factors" in reasons(
        "No execution plans support the graph.\nPlan at index 0: Deselecting execution plan"
    )
    assert reasons("something else") == "something else"
