import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from callboard.core.dtype import DTYPES
from callboard.core.layout import Layout, layout_of
from callboard.core.library import (
    Launch,
    Library,
    Prepare,
    SizeQuery,
    launches,
    modules_of,
    ops_of,
    plans,
    prepares,
    sizes,
)
from callboard.core.op import OPS, Op
from callboard.core.operand import In, Operand, Out, Placeholder, Scalar

F32, F64 = DTYPES["f32"], DTYPES["f64"]


class Add(Op["ToyActor", Operand], tag="toy.add"):
    a: In
    b: In | None = None
    alpha: Scalar = 1.0
    fast: bool = False
    out: Out | None = None

    def infer(self) -> dict[str, Layout]:
        return {"out": self.a.layout}


class Sum(Op["ToyActor", Operand], tag="toy.sum"):
    scale: Scalar
    parts: tuple[In, ...]
    out: Out | None = None

    def infer(self) -> dict[str, Layout]:
        return {"out": layout_of(F32, ())}


class Other(Op["ToyActor", Operand], tag="toy.other"):
    a: In

    def infer(self) -> dict[str, Layout]:
        return {}


for tag in ("toy.add", "toy.sum", "toy.other"):
    del OPS[tag]  # other modules look at all messages that there are


class Toy(Library):
    name = "toy"

    @prepares(Add, Sum, inline=True)
    def plan(self, op: Any) -> Any:
        return op

    @launches(Add, dtypes=[F32, F64], refuses=lambda op: "fast is not there" if op.fast else None)
    def add(self, stream: Any, plan: Any, a: int, b: int | None, alpha: float, out: int) -> None:
        """Nothing."""

    @launches(Sum, dtypes=[F32])
    def sum(self, stream: Any, plan: Any, scale: float, parts: tuple[int, ...], out: int) -> None:
        """Nothing."""


def of(dtype: str) -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], (3,)))


def test_tables_are_found_by_decorator() -> None:
    assert Toy.prepare_table == {Add: Prepare("plan", True), Sum: Prepare("plan", True)}
    assert list(Toy.launch_table) == [Add, Sum]
    assert Toy.launch_table[Sum] == Launch("sum", frozenset({F32}), None, True)
    assert Library.launch_table == Library.prepare_table == {}


def test_a_subclass_adds_to_its_own_tables_and_may_override() -> None:
    class Wider(Toy):
        def add(self, stream: Any, plan: Any, *dynamic: Any) -> None:
            """As the base is decorated."""

        @launches(Other)
        def other(self, stream: Any, plan: Any, a: int) -> None:
            """Nothing."""

    assert Wider.launch_table[Add] == Toy.launch_table[Add]
    assert Other in Wider.launch_table
    assert Other not in Toy.launch_table


@pytest.mark.parametrize(
    "op, why",
    [
        (Add(a=of("f32")), None),
        (Add(a=of("f64"), fast=False), None),
        (Add(a=of("i8")), "dtype i8; supported are f32, f64"),
        (Add(a=of("f32"), fast=True), "fast is not there"),
        (Other(a=of("f32")), "no implementation"),
        (Sum(scale=1.0, parts=(of("f32"), of("f64"))), None),
        (Sum(scale=1.0, parts=(of("f64"),)), "dtype f64; supported are f32"),
        (Sum(scale=1.0, parts=()), None),
    ],
)
def test_why_not(op: Op[Any, Any], why: str | None) -> None:
    assert Toy.why_not(op) == why


def test_an_op_that_is_never_executed_has_its_reason() -> None:
    class Without(Toy):
        refused: ClassVar = {Other: "there is no such device"}

    assert Without.why_not(Other(a=of("f32"))) == "there is no such device"
    assert Without.why_not(Add(a=of("f64"), fast=False)) is None


def test_a_launch_takes_what_the_message_declares() -> None:
    with pytest.raises(
        TypeError, match=r"wrong launches Other and must take \(self, stream, plan, a\), not \(self, s\)"
    ):

        class Wrong(Library):
            @launches(Other)
            def wrong(self, s: Any) -> None:
                """Nothing."""


def test_a_library_knows_its_device_and_stream() -> None:
    device: Any = object()
    stream: Any = object()
    toy = Toy(device, stream)
    assert (toy.device, toy.stream) == (device, stream)
    toy.warm_up()
    toy.close()


def test_a_launch_may_pass_on_what_the_message_declares() -> None:
    class PassesOn(Library):
        @launches(Other)
        def all_of_it(self, stream: Any, plan: Any, *operands: Any) -> None:
            """Nothing."""

    assert list(PassesOn.launch_table) == [Other]
    with pytest.raises(TypeError, match=r"must take \(self, stream, plan, a\), not \(self, stream, operands\)"):

        class Wrong(Library):
            @launches(Other)
            def wrong(self, stream: Any, *operands: Any) -> None:
                """Nothing."""


def test_what_is_done_before_a_launch_may_depend_on_the_op() -> None:
    class Ahead(Library):
        @sizes(Add, always=lambda op: op.fast)
        def begin(self, plan: Any, *operands: Any) -> None:
            """Nothing."""

    query_size = Ahead.size_table[Add]
    assert [query_size.due(Add(a=of("f32"), fast=fast)) for fast in (True, False)] == [True, False]


class Called:
    def __init__(self, library: Library, op: Op[Any, Any]) -> None:
        self.made_of = library, op

    def query_size(self, *given: Any) -> list[Any]:
        return [("sized", *given)]

    def __call__(self, *given: Any) -> Any:
        return ("launched", *given)


def module_of(name: str = "kinds", **made: Any) -> ModuleType:
    """A module that defines these."""
    module = ModuleType(name)
    for key, one in made.items():
        one.__module__ = name
        setattr(module, key, one)
    return module


def others(library: Library, op: Other) -> Called:
    return Called(library, op)


def sums(library: Library, op: Sum) -> Called:
    return Called(library, op)


KINDS = module_of(
    others=plans(Other, sizes=True, always=True, captures=False)(others),
    sums=plans(Sum, inline=True, dtypes=[F64])(sums),
)
KINDS.Called, KINDS.again = Called, KINDS.others  # type: ignore[attr-defined] # imported; another name of the same


class Collected(Toy):
    """The plans of a module beside what is decorated."""

    modules = (KINDS,)


def test_plans_are_collected_from_modules() -> None:
    assert Collected.makers == {Other: others, Sum: sums}
    assert Collected.prepare_table == {
        Add: Prepare("plan", True),
        Sum: Prepare("prepare", True),
        Other: Prepare("prepare", False),
    }
    assert Collected.size_table == {Other: SizeQuery("query_size", True)}
    assert Collected.launch_table[Sum] == Launch("launch", frozenset({F64}), None, True)
    assert Collected.launch_table[Other] == Launch("launch", None, None, False)
    assert Collected.launch_table[Add] == Toy.launch_table[Add]
    assert Toy.launch_table[Sum].method == "sum"
    assert ops_of(KINDS) == [Other, Sum]


def test_a_collected_plan_is_called_with_the_stream_and_what_the_message_declares() -> None:
    own: Any = object()
    library: Any = Collected(own, own)
    op = Other(a=of("f32"))
    plan = library.prepare(op)
    assert plan.made_of == (library, op)
    assert library.query_size(plan, 64) == [("sized", own, 64)]
    assert library.launch("a stream", plan, 64) == ("launched", "a stream", 64)


def test_a_method_may_make_the_plans_of_which_each_class_has_its_default() -> None:
    class More(Collected):
        inline = True

        @plans(Add)
        @plans(Sum, inline=False)
        def made(self, op: Op[Any, Any]) -> Called:
            return Called(self, op)

    assert More.prepare_table == {
        Add: Prepare("made", True),
        Sum: Prepare("made", False),
        Other: Prepare("prepare", False),
    }
    assert isinstance(More(None, None).prepare(Other(a=of("f32"))), Called)  # type: ignore[arg-type]
    assert Collected.prepare_table[Add] == Prepare("plan", True)


def test_one_op_has_one_plan() -> None:
    twice = module_of("twice", sums=plans(Other)(lambda library, op: op))
    with pytest.raises(TypeError, match=r"Wrong: kinds\.others and twice\.sums both serve Other; keep one"):

        class Wrong(Library):
            modules = (KINDS, twice)

    with pytest.raises(TypeError, match=r"Beside: kinds\.sums and sum both serve Sum; keep one"):

        class Beside(Library):
            modules = (KINDS,)

            @launches(Sum)
            def sum(self, stream: Any, plan: Any, *operands: Any) -> None:
                """Nothing."""


def test_a_library_may_refuse_for_all_of_its_ops() -> None:
    class Small(Collected):
        @staticmethod
        def refuses(op: Op[Any, Any]) -> str | None:
            return "it is too large"

    assert Small.why_not(Other(a=of("f32"))) == "it is too large"
    assert Small.why_not(Sum(scale=1.0, parts=(of("f32"),))) == "dtype f32; supported are f64"


def test_the_modules_of_a_library_are_those_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "toys_of_a_package"
    for name in ("__init__", "library", "adding", "inner/__init__", "inner/summing"):
        (package / name).parent.mkdir(exist_ok=True)
        (package / f"{name}.py").write_text("", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        found = [module.__name__ for module in modules_of("toys_of_a_package.library")]
        assert found == [f"toys_of_a_package.{name}" for name in ("adding", "inner", "inner.summing")]
        (package / "inner" / "broken.py").write_text("import toys_of_nobody", "utf-8")
        with pytest.raises(ModuleNotFoundError, match="toys_of_nobody"):
            modules_of("toys_of_a_package.library")
    finally:
        for name in [name for name in sys.modules if name.startswith("toys_of_a_package")]:
            del sys.modules[name]
