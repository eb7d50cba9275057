"""The generated methods: one per message of the library, with the message's fields as parameters.

:mod:`callboard.kernel.fft.methods` has NumPy's names, and :mod:`callboard.kernel.rng.methods` generators: they have
tests of their own.
"""

import importlib
import inspect
import re
import typing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from callboard.cli.api.methods import api_sources
from callboard.core import plugins
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.op import OPS, Op, info_of
from callboard.core.operand import Placeholder, Role
from callboard.kernel.api import Api
from callboard.kernel.array.api import ArrayApi
from callboard.kernel.blas import GemmGrouped
from callboard.kernel.blas.api import BlasApi
from callboard.kernel.blas_lt.api import BlasLtApi
from callboard.kernel.cub.api import CubApi
from callboard.kernel.dnn.api import DnnApi
from callboard.kernel.dnn.graphs import GraphNode, GraphOutput
from callboard.kernel.dnn.rnn import RnnParams
from callboard.kernel.memory import Empty
from callboard.kernel.solver.api import SolverApi
from callboard.kernel.sparse import BsrRef, CsrRef
from callboard.kernel.sparse.api import SparseApi
from callboard.kernel.sparse_lt import StructuredRef
from callboard.kernel.sparse_lt.api import SparseLtApi
from callboard.kernel.tensor.api import TensorApi

APIS: dict[str, type[Api]] = {
    "array": ArrayApi,
    "blas": BlasApi,
    "blas_lt": BlasLtApi,
    "cub": CubApi,
    "dnn": DnnApi,
    "solver": SolverApi,
    "sparse": SparseApi,
    "sparse_lt": SparseLtApi,
    "tensor": TensorApi,
}
MESSAGES: dict[str, type[Op[Any, Any]]] = {tag: cls for tag, cls in OPS.items() if tag.partition(".")[0] in APIS}
METHODS: dict[str, Any] = {
    f"{stem}.{name}": method
    for stem, api in APIS.items()
    for name, method in inspect.getmembers(api, inspect.isfunction)
    if not name.startswith("_")
}
ACTIVATIONS = ("relu", "leaky_relu", "clipped_relu", "elu", "gelu", "sigmoid", "tanh", "silu", "softplus")
OF_THE_HOST = {
    "sparse.from_scipy",
    "sparse.to_scipy",
    "dnn.fuse",
    "dnn.rope_tables",
    *(f"dnn.{name}" for name in ACTIVATIONS),
    *(f"solver.{name}" for name in ("det", "eig", "eigh", "inv", "lstsq", "sparse_factor")),
}
"""Methods beside those of the messages."""


def array(dtype: str, *shape: int) -> Any:
    return Placeholder(layout_of(DTYPES[dtype], shape))


ONE, VECTOR, INDICES, OFFSETS = array("f32", 8, 8), array("f32", 2), array("i32", 2), array("i32", 3)
STRUCTS: dict[type[Any], Any] = {
    CsrRef: CsrRef(VECTOR, INDICES, OFFSETS, (2, 2)),
    BsrRef: BsrRef(array("f32", 2, 1, 1), INDICES, OFFSETS, (2, 2)),
    StructuredRef: StructuredRef(array("u8", 2176), "f32", (8, 8)),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "array": {"dtype": "f64", "length": 3, "place": 1, "axis": 0},
    "blas": {},
    "blas.gbmv": {"below": 2, "rows": 3},
    "blas_lt": {"out_dtype": "f32", "autotune": 3, "workspace_size": 1 << 20},
    "blas_lt.matmul": {"epilogue": "relu"},
    "blas_lt.matmul_aux": {"epilogue": "relu_aux"},
    "blas_lt.matmul_bgrad": {"epilogue": "bgrad_a"},
    "cub": {
        "operation": "max",
        "dtype": "f64",
        "cuda": "return a;",
        "python": "a",
        "determinism": "not_guaranteed",
        "comparison": "less",
        "bins": 7,
        "channels": 2,
        "k": 2,
    },
    "cub.arg_reduce": {"operation": "min"},
    "dnn": {
        "window": (2, 2),
        "stride": 2,
        "padding": ((0, 1), 1),
        "dilation": 2,
        "activation": "gelu",
        "output_padding": 1,
        "scale": 0.5,
        "out_dtype": "i8",
        "layout": "NHWC",
        "kind": "elu",
        "reduction": "sum",
        "rows": 9,
        "extent": 9,
        "shape": (2, 2),
        "label_smoothing": 0.5,
        "probability": 0.25,
        "dropout": 0.5,
        "max_length": 4,
        "axes": 2,
        "axis": 2,
        "groups": 2,
        "size": 3,
        "k": 2,
        "parameter": 0.5,
        "epsilon": 0.5,
        "ignore_index": 3,
        "alpha": 0.5,
        "beta": 0.5,
        "momentum": 0.5,
    },
    "dnn.embedding_backward": {"padding": 3},
    "dnn.fused": {"nodes": (GraphNode("relu", (0,)),), "outputs": (GraphOutput(1, "f16"),)},
    "dnn.lrn": {"k": 2.0},
    "dnn.lrn_backward": {"k": 2.0},
    **{
        f"dnn.rnn_{name}": {"params": RnnParams("gru", 2, 3), "layout": "packed", "algorithm": "persist_static"}
        for name in ("forward", "forward_training", "backward")
    },
    "solver": {
        "columns": 2,
        "high": 2.0,
        "itype": 2,
        "low": 0.5,
        "method": "gesvd",
        "mode": "complete",
        "side": "right",
        "start": 1,
        "stop": 2,
        "transpose": "t",
    },
    "solver.ormqr": {"transpose": True},
    "solver.syevd": {"method": "syevj"},
    "sparse": {"format": "csc", "index": "i64", "block": (2, 2), "duplicates": "sum"},
    "sparse.check": {"duplicates": "keep"},
    "sparse_lt": {"algorithm": "tile", "activation": "gelu", "out_dtype": "f32"},
    "tensor": {
        **dict.fromkeys(("modes_a", "modes_b", "modes_out"), "ij"),
        "equation": "ij,ij->ij",
        "optimize": "greedy",
        "compute": "tf32",
        **dict.fromkeys(("op_reduce", "op_ac", "op_ab", "op_abc"), "mul"),
        **dict.fromkeys(("op_a", "op_b", "op_c"), "conj"),
    },
}
"""What is not a truth value: by library, and by message where it has to be another one."""


def other_value(tag: str, name: str, default: Any) -> Any:
    """Something valid in its kind that is not the default."""
    field = next((f for f in info_of(MESSAGES[tag]).dynamic if f.name == name), None)
    if field is None:
        settings = SETTINGS[tag.partition(".")[0]] | SETTINGS.get(tag, {})
        return settings.get(name, not default)
    if field.role is Role.SCALAR:
        number = 0.25 if float in field.takes else 3
        return (number, number) if field.many else number
    if field.structs:
        return next(STRUCTS[cls] for cls in STRUCTS if cls in field.structs)
    return (ONE, ONE) if field.many else ONE


class Recorder:
    """A device's ``submit`` that keeps what it is given."""

    def __init__(self) -> None:
        self.ops: list[Op[Any, Any]] = []

    def __call__(self, op: Op[Any, Any]) -> Any:
        self.ops.append(op)
        return op


def submitted(tag: str, arguments: dict[str, Any]) -> Op[Any, Any]:
    """What a method submits; it returns the reply."""
    stem, _, name = tag.partition(".")
    submit = Recorder()
    api: Any = APIS[stem](submit, np.asarray)
    positional: list[Any] = []
    if tag == "tensor.einsum":  # its operands come one by one
        positional = [arguments["equation"], *arguments["operands"]]
        arguments = {key: value for key, value in arguments.items() if key not in ("equation", "operands")}
    answer = getattr(api, name)(*positional, **arguments)
    (op,) = submit.ops
    assert answer is op
    assert type(op) is MESSAGES[tag]
    return op


@pytest.mark.parametrize("stem", APIS)
def test_one_method_per_message_named_after_it(stem: str) -> None:
    tags = {tag for tag in MESSAGES if tag.startswith(f"{stem}.")}
    assert {tag for tag in METHODS if tag.startswith(f"{stem}.")} - OF_THE_HOST == tags
    for tag in tags:
        assert re.sub(r"(?<!^)(?=[A-Z])", "_", MESSAGES[tag].__name__).lower() == tag.partition(".")[2]


@pytest.mark.parametrize("stem", APIS)
def test_all_has_every_message_its_results_and_the_actor(stem: str) -> None:
    library = importlib.import_module(f"callboard.kernel.{stem}")
    public = {name: getattr(library, name) for name in library.__all__}
    messages = {name: cls for name, cls in public.items() if isinstance(cls, type) and issubclass(cls, Op)}
    assert messages == {cls.__name__: cls for tag, cls in MESSAGES.items() if tag.startswith(f"{stem}.")}
    assert {cls.results.__name__ for cls in messages.values() if cls.results is not None} <= set(public)
    assert {"dnn": "CudnnActor"}.get(stem, f"{stem.title().replace('_', '')}Actor") in public


@pytest.mark.parametrize("library", plugins.BUILT_IN)
def test_the_generated_files_are_up_to_date(library: str) -> None:
    package = f"callboard.kernel.{library}"
    path = Path(str(importlib.import_module(f"{package}.api").__file__))
    files = [file.read_text("utf-8") for file in (path, path.with_suffix(".pyi"))]
    assert files == list(api_sources(package)), f"run: callboard api {package}"


@pytest.mark.parametrize("library", plugins.BUILT_IN)
def test_type_checkers_see_the_methods_that_exist(library: str) -> None:
    """The stub's signatures are those at run time; several overloads are one method together."""
    api = plugins.api_class(library)
    path = Path(str(importlib.import_module(api.__module__).__file__)).with_suffix(".pyi")
    stub: dict[str, Any] = {"__name__": f"stub of {library}"}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), stub)
    declared = vars(stub[api.__name__])
    names = {name for name in vars(api) if not name.startswith("_")}
    assert names == {name for name in declared if not name.startswith("_")}
    for name in names:
        method: Any = getattr(api, name)
        overloaded: Any = SimpleNamespace(__module__=stub["__name__"], __qualname__=f"{api.__name__}.{name}")
        forms = typing.get_overloads(overloaded) or [declared[name]]
        assert shape_of(forms[0]) == shape_of(method), name
        hints = [typing.get_type_hints(form) for form in forms]
        for parameter, hint in typing.get_type_hints(method).items():
            assert typing.Union[tuple(form[parameter] for form in hints)] == hint, (name, parameter)  # noqa: UP007


def shape_of(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("tag", MESSAGES)
def test_parameters_are_the_fields(tag: str) -> None:
    """Same names, order and defaults; what is optional is keyword-only and comes last."""
    parameters = list(inspect.signature(METHODS[tag]).parameters.values())[1:]
    fields = sorted(msgspec.structs.fields(MESSAGES[tag]), key=lambda field: not field.required)
    assert [p.name for p in parameters] == [f.name for f in fields]
    for parameter, field in zip(parameters, fields, strict=True):
        if (tag, field.name) == ("tensor.einsum", "operands"):
            assert parameter.kind is parameter.VAR_POSITIONAL
            continue
        assert parameter.kind is (parameter.POSITIONAL_OR_KEYWORD if field.required else parameter.KEYWORD_ONLY)
        assert parameter.default == (parameter.empty if field.required else field.default)
        assert type(parameter.default) is type(parameter.empty if field.required else field.default)


@pytest.mark.parametrize("tag", MESSAGES)
def test_every_argument_arrives_in_its_field(tag: str) -> None:
    fields = msgspec.structs.fields(MESSAGES[tag])
    arguments = {f.name: other_value(tag, f.name, f.default) for f in fields}
    assert not any(arguments[f.name] is f.default or arguments[f.name] == f.default for f in fields)
    op = submitted(tag, arguments)
    for field, given in arguments.items():
        got = getattr(op, field)
        assert got == given if isinstance(given, int | float | str | tuple) else got is given, field


@pytest.mark.parametrize("tag", MESSAGES)
def test_defaults_of_the_method_are_defaults_of_the_message(tag: str) -> None:
    fields = msgspec.structs.fields(MESSAGES[tag])
    required = {f.name: other_value(tag, f.name, None) for f in fields if f.required}
    op = submitted(tag, required)
    assert [getattr(op, f.name) for f in fields] == [required.get(f.name, f.default) for f in fields]


@pytest.mark.parametrize("tag", METHODS)
def test_every_method_says_what_it_does(tag: str) -> None:
    text = inspect.getdoc(METHODS[tag])
    assert text
    assert text.splitlines()[0].endswith(".")


@pytest.mark.parametrize("tag", MESSAGES)
def test_the_message_says_what_it_does_and_names_every_field(tag: str) -> None:
    text = inspect.getdoc(MESSAGES[tag])
    assert text
    first, _, arguments = text.partition("Args:")
    assert first.splitlines()[0].endswith(".")
    for field in MESSAGES[tag].__struct_fields__:
        assert re.search(rf"^ +(\w+, )*{field}(, \w+)*:", arguments, re.MULTILINE), field


def test_sequences_become_tuples() -> None:
    submit = Recorder()
    BlasApi(submit, np.asarray).gemm_grouped([ONE], [ONE], [ONE])
    (op,) = submit.ops
    assert isinstance(op, GemmGrouped)
    assert op.c == (ONE,)


class EmptyApi(Api):
    __slots__ = ()

    def empty(self, *shape: int) -> Any:
        return self._submit(Empty(shape=shape, dtype="f32"))


def test_a_method_submits_its_message_and_returns_the_reply() -> None:
    submit = Recorder()
    answer = EmptyApi(submit, np.asarray).empty(2, 3)
    assert submit.ops == [Empty(shape=(2, 3), dtype="f32")]
    assert answer is submit.ops[0]
