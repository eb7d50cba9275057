"""``tests/data/vocabulary_examples.txt``: what the rows of the vocabulary claim is done, by the name that they give.

An example counts for a row only if it runs what the row names: it submits that message, calls that function or method,
or uses that class or field by its name.
"""

import ast
import asyncio
import importlib
import inspect
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest import mock

import msgspec
import numpy as np
import pytest
from tests.test_vocabulary import PAGE, REFERENCE, Row, rows_of

import callboard as cb
from callboard.core import plugins
from callboard.core.op import Op, Repeated
from callboard.device.client.line.port import OpPort

FILE = Path(__file__).parent / "data" / "vocabulary_examples.txt"
SETTINGS = "callboard.kernel.", "callboard.patterns.", "callboard.device.config", "callboard.device.client."
"""Where structs are that applications fill in or read."""
ROWS = [row for row in rows_of(PAGE.read_text("utf-8")) if not row.where.startswith("later")]


class Example(NamedTuple):
    section: str
    words: list[str]
    code: str

    def __str__(self) -> str:
        return self.words[0]


class Target(NamedTuple):
    """What a row names: a module's name, or the member of a class; the class of a library's methods for a stub."""

    holder: Any
    name: str
    value: Any


def examples_of(text: str) -> Iterator[Example]:
    section = ""
    for block in re.split(r"\n\n(?=\S)", text):
        words, _, code = block.partition("\n")
        if words.startswith("## "):
            section = words.removeprefix("## ")
        elif not words.startswith("#"):
            yield Example(section, words.split("; "), textwrap.dedent(code))


def target_of(row: Row) -> Target | None:
    """The first name of a row; None if that is a file, or stands in no Python file."""
    file, _, name = re.findall(REFERENCE, row.where)[0].strip("`").partition(":")
    if not name or file.endswith(".toml"):
        return None
    if file.endswith(".pyi"):
        api = plugins.api_class(file.split("/")[1])
        member = name.partition(".")[2]
        return Target(api, member or name, getattr(api, member) if member else api)
    path = "callboard." + file.removesuffix(".py").replace("/", ".")
    holder: Any = importlib.import_module(path.removesuffix(".__init__"))
    *outer, name = name.split(".")
    for part in outer:
        holder = getattr(holder, part)
    return Target(holder, name, inspect.getattr_static(holder, name, None))


@cache
def public_classes() -> set[type]:
    """What ``cb`` has, with the bases, and the methods of libraries."""
    public = {value for name in cb.__all__ if inspect.isclass(value := getattr(cb, name))}
    public |= {base for cls in public for base in cls.__mro__ if base.__module__.startswith("callboard.")}
    return public | {plugins.api_class(name) for name in plugins.library_names()}


def is_request(target: Target) -> bool:
    """Whether applications send, call or set it: messages and settings, and what ``cb`` and ``dev.<library>`` have."""
    public = public_classes()
    found = target.value if inspect.isclass(target.value) else target.holder
    if inspect.isclass(found):
        settings = issubclass(found, msgspec.Struct) and found.__module__.startswith(SETTINGS)
        return found is not Op and (found in public or issubclass(found, Op) or settings)
    return any(target.value is getattr(cb, name) for name in cb.__all__)


def code_of(value: Any) -> set[CodeType]:
    """The code that runs when a function, property or class is used."""
    if inspect.isclass(value):
        own = [code_of(one) for one in vars(value).values() if not inspect.isclass(one)]
        return set().union(*own)
    value = getattr(value, "__func__", getattr(value, "fget", value))
    code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
    return set() if code is None else {code}


class Used:
    """What runs on this thread, and which messages devices are given: those that open while it is entered."""

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()
        self.messages: set[type] = set()

    def __enter__(self) -> "Used":
        submit = OpPort.submit

        def noted(port: OpPort, op: Any, *args: Any, **options: Any) -> Any:
            self.messages.update(type(op.made() if isinstance(op, Repeated) else op).__mro__)
            return submit(port, op, *args, **options)

        self._patch = mock.patch.object(OpPort, "submit", noted)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    @contextmanager
    def only(self) -> Iterator[None]:
        """Forget what ran before, and notice what runs now."""
        self.codes.clear()
        self.messages.clear()
        before = sys.gettrace()
        sys.settrace(self._note)
        try:
            yield
        finally:
            sys.settrace(before)

    def _note(self, frame: FrameType, *_: Any) -> None:
        self.codes.add(frame.f_code)

    def has(self, target: Target, code: str) -> bool:
        value = target.value
        if inspect.isclass(value) and value in self.messages:
            return True
        return bool(code_of(value) & self.codes) or re.search(rf"\b{target.name}\b", code) is not None


async def same(result: Any, value: Any) -> bool:
    """Await a result: does it equal the value, up to the rounding of f32?"""
    got = await (result.get() if isinstance(result, cb.GpuRef) else result)
    got, value = (np.asarray(x, None if np.asarray(x).dtype.kind in "biufc" else np.float64) for x in (got, value))
    return got.shape == value.shape and bool(np.allclose(got, value, rtol=1e-5, atol=1e-6))


async def fails(error: type[BaseException], result: Any) -> bool:
    """Whether a call or an awaitable raises this error."""
    try:
        awaited = result() if callable(result) and not inspect.isawaitable(result) else result
        if inspect.isawaitable(awaited):
            await awaited
    except error:
        return True
    return False


def compiled(code: str) -> CodeType:
    """``async def example()`` of the code, which returns its last expression."""
    tree = ast.parse("async def example():\n" + textwrap.indent(code, "    "))
    (function,) = tree.body
    assert isinstance(function, ast.AsyncFunctionDef)
    last = function.body[-1]
    assert isinstance(last, ast.Expr), f"ends with no expression: {code}"
    function.body[-1] = ast.copy_location(ast.Return(last.value), last)
    return compile(tree, "example", "exec")


async def wrong(example: Example, targets: Mapping[str, Target], used: Used, names: dict[str, Any]) -> list[str]:
    """What an example does not show."""
    known = dict(names)
    for target in targets.values():
        if inspect.ismodule(target.holder):
            known[target.name] = target.value
        else:
            known[target.holder.__name__] = target.holder
    exec(compiled(example.code), known)
    try:
        with used.only():
            result = await known["example"]()
    except Exception:
        return [f"{example}: {traceback.format_exc(limit=-2)}"]
    if not isinstance(result, bool | np.bool_):
        return [f"{example}: ends with {result!r}, not with True"]
    found = [] if result else [f"{example}: False\n{example.code}"]
    unused = [word for word, target in targets.items() if not used.has(target, example.code)]
    return found + [f"{example}: does not use what the row of {word} names, {targets[word].name}" for word in unused]


async def wrong_examples(examples: list[Example]) -> list[str]:
    rows = {row.word: row for row in ROWS}
    found: list[str] = []
    a, b = np.array([[4.0, 1], [1, 3]]), np.array([[2.0, -1], [-1, 5]])
    with mock.patch.dict(os.environ, CALLBOARD_CPU_DEVICES="2"), Used() as used:
        async with AsyncExitStack() as stack:
            options: dict[str, Any] = {"isolation": "thread", "dispatcher": "caller"}
            gpu, second = [await stack.enter_async_context(cb.device(f"cpu:{i}", **options)) for i in range(2)]
            names = {"cb": cb, "np": np, "asyncio": asyncio, "gpu": gpu, "second": second, "put": gpu.put}
            names |= {"a": a, "b": b, "v": np.array([1.0, 2]), "w": np.array([-3.0, 5]), "same": same, "fails": fails}
            for example in examples:
                targets = {word: target for word in example.words if (target := target_of(rows[word])) is not None}
                found += await wrong(example, targets, used, names)
    return found


EXAMPLES = list(examples_of(FILE.read_text("utf-8")))


def sections() -> list[Any]:
    """Those that need a package of an extra, ``## training (torch)``, are slow: it is loaded for them only."""
    names = dict.fromkeys(example.section for example in EXAMPLES)
    return [pytest.param(name, marks=pytest.mark.slow if name.endswith(")") else ()) for name in names]


@pytest.mark.few(len(EXAMPLES))
@pytest.mark.parametrize("section", sections())
def test_each_example_shows_what_its_rows_say(section: str) -> None:
    if needed := re.search(r"\((\w+)\)$", section):
        pytest.importorskip(needed[1], reason=f"{needed[1]} is not installed")
    found = asyncio.run(wrong_examples([example for example in EXAMPLES if example.section == section]))
    assert not found, "\n".join(found)


def test_each_row_of_a_request_or_setting_has_an_example() -> None:
    shown = [word for example in EXAMPLES for word in example.words]
    assert len(shown) == len(set(shown))
    assert set(shown) <= {row.word for row in ROWS}
    wanted = {row.word for row in ROWS if (target := target_of(row)) is not None and is_request(target)}
    assert sorted(wanted - set(shown)) == []


@pytest.mark.parametrize(
    "words, code, says",
    [
        ("AsumRequest", "await same(gpu.blas.asum(put(v)), 3)", ""),
        ("AsumRequest", "await same(gpu.blas.asum(put(v)), 4)", "False"),
        ("AsumRequest", "await same(gpu.blas.nrm2(put(v)), np.sqrt(5))", "does not use what the row of AsumRequest"),
        ("AsumRequest", "gpu.blas.asum(put(v))", "not with True"),
        ("GemmRequest.alpha", "await same(gpu.blas.gemm(put(a), put(b)), a @ b)", "names, alpha"),
        ("copy_to_host", "put(v).shape == (2,)", "names, get"),
        ("AsumRequest", "gpu.blas.assum(put(v))", "AttributeError"),
    ],
)
def test_the_check_can_fail(words: str, code: str, says: str) -> None:
    found = asyncio.run(wrong_examples([Example("", [words], code)]))
    assert (says in found[0]) if says else found == []
