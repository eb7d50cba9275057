"""Every argument that names a dtype takes whatever names one, and keeps it by its name.

They are found by introspection: a new one that is declared otherwise, or that nobody has tried, fails here.
"""

import inspect
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pytest
from tests.kernel.test_api import MESSAGES, METHODS, other_value, submitted

import callboard as cb
from callboard.core.dtype import DTYPES, DTypeLike, as_dtype
from callboard.core.op import OPS, info_of
from callboard.core.operand import parts_of
from callboard.core.settings import stored, words_of
from callboard.device.client.api import DeviceApi
from callboard.kernel.fft.api import FftApi
from callboard.kernel.memory import Empty
from callboard.kernel.rng.api import RngApi
from callboard.kernel.rng.generator import RngGenerator
from callboard.kernel.sparse_lt import StructuredRef

NONSENSE = [3, "f99", object, np.longdouble, ["f4"], b"f4", np.float32(1), np.zeros(2), {}]
HOSTS: tuple[type[Any], ...] = (
    DeviceApi,
    cb.Device,
    cb.sync.Device,
    cb.GpuRef,
    cb.sync.Ref,
    RngGenerator,
    RngApi,
    FftApi,
)
CALLABLES: dict[str, Any] = {
    **METHODS,
    **{
        f"{cls.__module__}.{cls.__qualname__}.{name}": method
        for cls in HOSTS
        for name, method in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    },
    **{name: value for name, value in vars(cb).items() if inspect.isfunction(value) and not name.startswith("_")},
    "supports": cb.supports,
}


def kept(hint: Any) -> tuple[Any, ...]:
    """The names that an argument of this type may stand for, if any are dtypes'."""
    words = words_of(stored(hint))
    return () if DTYPES.keys().isdisjoint(words) else words


def takes_any(hint: Any) -> bool:
    """Whether type checkers let everything pass that names a dtype."""
    parts = {p for part in (get_args(hint) or (hint,)) for p in (part, *get_args(part))}
    return set(get_args(DTypeLike)) <= parts or any(
        get_origin(p) is Annotated and get_args(p)[0] == DTypeLike for p in (hint, *parts)
    )


def asks_for_dtype(name: str, hint: Any) -> bool:
    return name == "dtype" or name.endswith("_dtype") or bool(kept(hint))


def parameters() -> Iterator[tuple[str, str, Any]]:
    for where, function in CALLABLES.items():
        hints = get_type_hints(function, None, {"Profile": Any}, include_extras=True)  # imported when it is called
        for name in inspect.signature(function).parameters:
            if asks_for_dtype(name, hints.get(name)):
                yield where, name, hints.get(name)


def fields() -> Iterator[tuple[str, str]]:
    for tag, cls in OPS.items():
        hints = get_type_hints(cls, include_extras=True)
        yield from ((tag, name) for name in info_of(cls).statics if asks_for_dtype(name, hints[name]))


FIELDS = list(fields())
OF_FACES = [(tag, name) for tag, name in FIELDS if tag in MESSAGES]


def test_some_are_found() -> None:
    assert ("blas_lt.matmul", "out_dtype") in FIELDS
    assert ("sparse_lt.linear", "out_dtype") in FIELDS
    assert ("tensor.einsum", "compute") in FIELDS
    assert ("sparse.from_dense", "index") in FIELDS
    without = {tag for tag, _ in FIELDS} - {tag for tag, _ in OF_FACES}
    assert "memory.empty" in without
    assert without <= {
        "elementwise.reduce",
        "ipc.empty",
        "managed.allocate",
        "memory.empty",
        "cutlass.conv",
        "cutlass.explain",
        "cutlass.explain_conv",
        "cutlass.gemm",
        "cutlass.grouped_gemm",
    }  # of those that a test has imported
    where = {where.rpartition(".")[2] for where, _, _ in parameters()}
    assert {"empty", "put", "supports", "normal", "reinterpret", "from_scipy", "matmul"} <= where


@pytest.mark.parametrize("where, name, hint", list(parameters()), ids=lambda x: x if isinstance(x, str) else None)
def test_every_parameter_is_declared_as_anything_that_names_a_dtype(where: str, name: str, hint: Any) -> None:
    assert takes_any(hint), f"{where}({name}: {hint})"


@pytest.mark.parametrize("tag, name", FIELDS)
def test_every_field_is_declared_so_and_kept_as_a_word(tag: str, name: str) -> None:
    assert takes_any(get_type_hints(OPS[tag], include_extras=True)[name])
    assert kept(get_type_hints(OPS[tag], include_extras=True)[name])


def spellings(word: str) -> list[Any]:
    if word not in DTYPES:  # tf32, which is no dtype
        return [word]
    dtype = DTYPES[word]
    found = [word, dtype, dtype.np, dtype.np.type, dtype.np.name]
    return found + [t for t, n in ((float, "f64"), (int, "i64"), (complex, "c128"), (bool, "bool")) if n == word]


def made(tag: str, name: str, value: Any) -> Any:
    required = [f.name for f in msgspec.structs.fields(MESSAGES[tag]) if f.required]
    return submitted(tag, {n: other_value(tag, n, None) for n in required} | {name: value})


@pytest.mark.parametrize("tag, name", OF_FACES)
def test_a_message_is_the_same_however_a_dtype_is_named(tag: str, name: str) -> None:
    words = [word for word in kept(get_type_hints(MESSAGES[tag], include_extras=True)[name]) if word is not None]
    for word in words:
        signatures = set()
        for value in spellings(word):
            op = made(tag, name, value)
            assert (type(getattr(op, name)), getattr(op, name)) == (str, word)
            signatures.add(info_of(type(op)).split(op).signature)
        assert len(signatures) == 1


@pytest.mark.parametrize("value", NONSENSE, ids=repr)
@pytest.mark.parametrize("tag, name", OF_FACES)
def test_what_names_none_is_refused_by_argument_value_and_cure(tag: str, name: str, value: Any) -> None:
    with pytest.raises(TypeError) as caught:
        made(tag, name, value)
    assert str(caught.value).startswith(f"{tag}: {name} = {value!r}: use one of ")
    assert f"'{words_of(stored(get_type_hints(MESSAGES[tag], include_extras=True)[name]))[0]}'" in str(caught.value)


def test_a_dtype_that_is_none_of_the_words_is_refused_as_another_word_is() -> None:
    with pytest.raises(
        TypeError, match=r"compute = <class 'numpy\.int32'>: use one of 'f16', 'bf16', 'tf32', 'f32', 'f64'"
    ):
        made("tensor.contract", "compute", np.int32)


def test_values_of_several_refs_keep_theirs_so_too() -> None:
    data = np.zeros(2)
    for word in ("f16", "bf16", "f32", "i8", "f8_e4m3", "f8_e5m2"):
        for value in spellings(word):
            structured: Any = StructuredRef(data, value, (8, 8))  # type: ignore[arg-type]
            assert (type(structured.dtype), structured.dtype) == (str, word)
    assert parts_of(StructuredRef).settings == ("dtype", "shape")
    with pytest.raises(TypeError, match=r"StructuredRef: dtype = <class 'numpy\.float64'>: use one of 'f16'"):
        StructuredRef(data, np.float64, (8, 8))  # type: ignore[arg-type]


def test_new_arrays_are_asked_for_alike() -> None:
    signatures = {info_of(Empty).split(Empty(shape=(2,), dtype=value)).signature for value in spellings("bf16")}
    assert len(signatures) == 1


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "put": ([1, 0],),
    "empty": (2,),
    "zeros": (2,),
    "full": (2, 1),
    "host_empty": (2,),
    "bits": (2,),
    "uniform": (2,),
    "normal": (2,),
    "random": (2,),
    "standard_normal": (2,),
    "standard_cauchy": (2,),
    "standard_exponential": (2,),
    "lognormal": (0.0, 1.0, 2),
    "log_normal": (2,),
    "exponential": (2,),
    "cauchy": (2,),
    "gamma": (1.0, 1.0, 2),
    "beta": (1.0, 1.0, 2),
    "poisson": (1.0, 2),
    "integers": (0, 2, 2),
    "permutation": (2,),
    "discrete": (),
    "view": (),
    "reinterpret": (),
    "astype": (),
}
"""Of methods of a device, of a ref and of a generator; where there are none, an array of the device is passed."""
INTEGER = {"bits", "poisson", "integers", "permutation", "discrete"}


def test_the_device_takes_them_all() -> None:
    of_objects = {where.rpartition(".")[2] for where, _, _ in parameters() if where.startswith("callboard.")}
    as_numpy_has_them = {"sum", "prod", "mean", "var", "std", "cumsum", "cumprod", "trace"}
    assert of_objects - {"generator"} - as_numpy_has_them == set(ARGUMENTS)
    with cb.sync.device("cpu", isolation="thread", standby=None) as cpu:
        array = cpu.zeros(2, "f32")
        weights = cpu.put([1.0, 2.0], dtype="f32")
        for name, arguments in ARGUMENTS.items():
            word = "u32" if name in INTEGER else "f32"
            method = _method(cpu, array, name)
            arguments = arguments or {"discrete": (weights, 2), "view": (array,)}.get(name, ())
            for value in spellings(word):
                assert as_dtype(_dtype(method(*arguments, dtype=value))).name == word, (name, value)
            for value in NONSENSE:
                with pytest.raises(TypeError) as caught:
                    method(*arguments, dtype=value)
                assert f"dtype {value!r} is not supported; use one of f16, bf16" in str(caught.value)
    with pytest.raises(TypeError, match=r"dtype 'f99' is not supported; use one of f16"):
        cb.supports(OPS["blas.gemm"], "f99", "cpu")


def _method(cpu: Any, array: Any, name: str) -> Any:
    generator = cpu.rng.philox()
    return next(getattr(host, name) for host in (cpu, generator, array, cpu.rng) if hasattr(host, name))


def _dtype(answer: Any) -> Any:
    return answer.dtype


def test_the_words_are_literals() -> None:
    """So that the wire refuses what no name is."""
    for tag, name in FIELDS:
        hint = stored(get_type_hints(OPS[tag], include_extras=True)[name])
        assert any(get_origin(part) is Literal for part in (hint, *get_args(hint)))
