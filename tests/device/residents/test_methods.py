"""Callable methods and valid arguments: errors are raised at the call, with the method's name and signature."""

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.device.residents.lab import is_read_only

import callboard as cb
from callboard.device.client.residents.methods import MAX_KNOWN, Methods, signature_of

pytestmark = pytest.mark.leaves_nothing


def logged(function: Callable[..., Any]) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return [function.__name__, function(*args, **kwargs)]

    return wrapper


def doubled(function: Callable[..., Any]) -> Any:
    """A wrapper with parameters of its own."""

    @functools.wraps(function)
    def wrapper(self: Any, x: int, times: int = 2) -> Any:
        return function(self, x * times, "wrapped")

    return wrapper


def nameless(function: Callable[..., Any]) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Base(cb.ResidentActor):
    def __init__(self, start: int = 0) -> None:
        self.start = start

    def plain(self, x, y=2, *rest, key=None):  # type: ignore[no-untyped-def]
        return [self.start, x, y, list(rest), key]

    def overridden(self, x: int) -> int:
        return x

    def only_read(self, array: Any) -> bool:
        return not is_read_only(array)

    @logged
    def counted(self, n: int, *, by: int = 1) -> int:
        return self.start + n * by

    @doubled
    def with_text(self, x: int, text: str) -> list[Any]:
        return [x, text]

    @functools.cache  # noqa: B019  # what users write
    def cached(self, n: int) -> int:
        return n + 1

    @nameless
    def lost_its_name(self) -> int:
        return 1

    @staticmethod
    def static(n: int) -> int:
        return n

    @classmethod
    def of_class(cls, n: int) -> int:
        return n

    @property
    def size(self) -> int:
        return 1

    number = 5

    def arrays(self, how: str) -> Any:
        made = unlike()
        match how:
            case "list":
                return made
            case "tuple":
                return tuple(made)
            case "dict":
                return {f"array {i}": array for i, array in enumerate(made)}
        return {"a": [made[0], (made[1], {"b": made[2:]})]}

    def echo(self, value: Any) -> Any:
        return value


class Derived(Base):
    def overridden(self, x: int, more: int = 0) -> int:
        return 10 * x + more

    def only_read(self, array: cb.In) -> bool:
        return super().only_read(array)


def made_by_a_function() -> Base:
    return Base(3)


def unlike() -> list[np.ndarray[Any, Any]]:
    """Arrays of unlike shapes, dtypes and layouts, about 2 MiB in all."""
    random = np.random.default_rng(1)
    return [
        np.empty((0, 3), np.float32),
        np.array(2.5),
        np.arange(7, dtype=np.int16),
        random.random((300, 400)),
        np.empty((4, 0, 2), np.complex64),
        random.integers(0, 255, 1_000_003, np.uint8),
        np.array(True),
        np.asfortranarray(random.random((5, 6)).astype(np.float32)),
        random.random((200, 300))[::2, ::-3],
        np.arange(4).astype(ml_dtypes.bfloat16),
        np.zeros(3, [("a", "f4"), ("b", "i8", (2,))]),
        np.array(["ab", "c"]),
        np.array(["2026-01-02"], "datetime64[D]"),
        np.empty(0, np.bool_),
        np.array(7, np.uint64),
        random.random((1, 1, 90_000)).astype(np.float16),
    ]


def same(a: Any, b: Any) -> None:
    assert type(a) is np.ndarray
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    np.testing.assert_array_equal(a, b)


# -- arguments ---------------------------------------------------------------------------------------------------------


async def test_methods_without_annotations_are_called(anywhere: cb.Device) -> None:
    actor = anywhere.actor_of(cb.Props(Base, 1), name="base")
    assert await actor.call(Base.plain, 5) == [1, 5, 2, [], None]
    assert await actor.call(Base.plain, 5, 6, 7, 8, key="k") == [1, 5, 6, [7, 8], "k"]
    array: Any = await actor.call(Base.plain, np.arange(3), y=[np.ones(2)])
    np.testing.assert_array_equal(array[1], [0, 1, 2])
    np.testing.assert_array_equal(array[2], [[1, 1]])


WRONG: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any], str]] = {
    "missing": (Base.plain, (), {}, r"base\.plain\(self, x, y=2, \*rest, key=None\): missing a required argument: 'x'"),
    "unknown": (Base.plain, (1,), {"z": 1}, r"base\.plain\(self, x.*\): got an unexpected keyword argument 'z'"),
    "twice": (Base.plain, (1,), {"x": 1}, r"base\.plain\(self, x.*\): multiple values for argument 'x'"),
    "too many": (Base.echo, (1, 2), {}, r"base\.echo\(self, value: Any\) -> Any: too many positional arguments"),
    "wrapped": (Base.counted, (), {}, r"base\.counted\(self, n: int, \*, by: int = 1\).*: missing .*'n'"),
    "wrapped, unknown": (Base.counted, (1,), {"to": 1}, r"base\.counted\(self, n.*unexpected keyword argument 'to'"),
    "the wrapper's own": (Base.with_text, (1, 2, 3), {}, r"base\.with_text\(self, .*times=2\).*: too many"),
    "cached": (Base.cached, (), {}, r"base\.cached\(self, n: int\) -> int: missing"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("made", ["by a class", "by a subclass", "by a function"])
async def test_arguments_that_do_not_fit_are_refused_with_the_signature(case: str, made: str) -> None:
    method, args, kwargs, text = WRONG[case]
    props: Any = {
        "by a class": cb.Props(Base),
        "by a subclass": cb.Props(Derived),
        "by a function": cb.Props(made_by_a_function),
    }[made]
    async with cb.device("cpu", isolation="thread") as dev:
        actor: cb.ResidentRef[Any] = dev.actor_of(props, name="base")
        with pytest.raises(TypeError, match=text):
            actor.call(method, *args, **kwargs)
        assert actor.in_flight == 0


async def test_decorated_and_inherited_methods_are_called(anywhere: cb.Device) -> None:
    actor: cb.ResidentRef[Any] = anywhere.actor_of(cb.Props(Derived, 1))
    assert await actor.call(Base.counted, 2, by=5) == ["counted", 11]
    assert await actor.call(Derived.counted, n=2) == ["counted", 3]
    assert await actor.call(Base.with_text, 2) == [4, "wrapped"]
    assert await actor.call(Base.with_text, x=2, times=3) == [6, "wrapped"]
    assert await actor.call(Base.cached, 4) == 5
    assert await actor.call(Base.overridden, 2) == 20  # the subclass's own
    assert await actor.call(Derived.overridden, 2, more=1) == 21


async def test_the_methods_of_the_actors_class_count(anywhere: cb.Device) -> None:
    """Its signature, and whether it only reads a device array, also where a method of its base was given."""
    actor: cb.ResidentRef[Any] = anywhere.actor_of(cb.Props(Derived))
    assert await actor.call(Base.overridden, 2, more=3) == 23  # type: ignore[call-arg]
    x = anywhere.put(np.ones(3))
    assert await actor.call(Base.only_read, x) is False
    base: cb.ResidentRef[Any] = anywhere.actor_of(cb.Props(Base))
    assert await base.call(Base.only_read, x) is True


async def test_an_actor_made_by_a_function_is_called(anywhere: cb.Device) -> None:
    actor: cb.ResidentRef[Any] = anywhere.actor_of(cb.Props(made_by_a_function), name="made")
    assert await actor.call(Base.plain, 5) == [3, 5, 2, [], None]
    assert await actor.call(Base.counted, 2) == ["counted", 5]
    for method, text in NO_METHODS.items():
        with pytest.raises(TypeError, match=text):
            actor.call(getattr(Base, method), 1)
    with pytest.raises(TypeError, match="is not a method"):
        actor.call(len, [])  # type: ignore[call-arg]


NO_METHODS = {
    "static": r"static is a static method, which has no use for the actor; call it directly",
    "of_class": r"of_class is a class method, which knows no instance; .*def of_class_here\(self, \.\.\.\)",
    "size": "is not a method; pass one of its class",
    "number": "5 is not a method",
}


@pytest.mark.parametrize("method", NO_METHODS)
async def test_what_is_no_plain_method_is_refused(method: str) -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        actor: cb.ResidentRef[Any] = dev.actor_of(cb.Props(Derived), name="base")
        with pytest.raises(TypeError, match=NO_METHODS[method]):
            actor.call(getattr(Derived, method), 1)


async def test_other_refusals_say_what_to_do() -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        actor: cb.ResidentRef[Any] = dev.actor_of(cb.Props(Base), name="base")
        with pytest.raises(TypeError, match=r"Base has no method wrapper; .*functools\.wraps"):
            actor.call(Base.lost_its_name)
        with pytest.raises(TypeError, match="bound to an object; pass one of its class"):
            actor.call(Base().echo, 1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="is not a method"):
            actor.call(cb.GpuRef)  # type: ignore[arg-type]


def test_methods_are_looked_up_once_and_not_without_limit() -> None:
    methods = Methods("base", Base)
    assert methods.find(Base.echo) is methods.find(Base.echo)
    assert methods.find(Base.echo).frozen == frozenset()
    assert Methods("derived", Derived).find(Base.only_read).frozen == {"array"}
    made_here = Methods("made", None)
    for _ in range(MAX_KNOWN + 1):

        def echo(self: Any, value: Any) -> Any:
            return value

        made_here.find(echo)
    assert len(made_here._known) == 1


def test_what_has_no_signature_is_not_checked() -> None:
    assert signature_of(dict.update) is None


# -- results -----------------------------------------------------------------------------------------------------------


@pytest.mark.few(2)
@pytest.mark.parametrize("how", ["list", "tuple", "dict", "nested"])
async def test_unlike_arrays_are_results(anywhere: cb.Device, how: str) -> None:
    actor = anywhere.actor_of(cb.Props(Base))
    got = await actor.call(Base.arrays, how)
    wanted = unlike()
    match how:
        case "list" | "tuple":
            assert type(got).__name__ == how
        case "dict":
            assert list(got) == [f"array {i}" for i in range(len(wanted))]
            got = list(got.values())
        case _:
            (first, (second, rest)) = got["a"]
            got = [first, second, *rest["b"]]
    for a, b in zip(got, wanted, strict=True):
        same(a, b)
        if a.size and a.dtype.names is None and a.ndim:
            a[...] = a[::-1].copy()  # they are the caller's own


async def test_unlike_arrays_are_arguments(anywhere: cb.Device) -> None:
    actor = anywhere.actor_of(cb.Props(Base))
    for value in (unlike(), tuple(unlike())):
        for a, b in zip(await actor.call(Base.echo, value), unlike(), strict=True):
            same(a, b)
    assert await actor.call(Base.echo, [[], (), {}]) == [[], (), {}]
