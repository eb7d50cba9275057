"""Models that could answer no request are refused when they are added."""

import functools
from collections.abc import Iterator
from typing import Any

import pytest
from serve_lab import X, Y

import callboard as cb
from callboard.serve import App, Tensor


class Doubler(cb.ResidentActor):
    def double(self, x: Any) -> Any:
        return 2 * x

    def parts(self, x: Any) -> Iterator[Any]:
        yield x


def generator(x: Any) -> Iterator[Any]:
    yield x


def two(x: Any, y: Any) -> Any:
    return x + y


class Yields:
    def __call__(self, x: Any) -> Iterator[Any]:
        yield x


CURE = r"functools\.partial\(ref\.call, Doubler\.{}\)"
STARTED = r"ref = device\.actor_of\(cb\.Props\(Doubler, \.\.\.\)\), and pass "

WRONG: dict[str, tuple[Any, str]] = {
    "an actor's class": (Doubler, f"class of a resident actor.*{STARTED}{CURE.format('method')}"),
    "an actor": (Doubler(), f"no device has started.*{STARTED}"),
    "props": (cb.Props(Doubler), f"only describes an actor.*{STARTED}"),
    "a method without the actor": (Doubler.double, f"without the actor.*{CURE.format('double')}"),
    "its partial": (functools.partial(Doubler.double), "without the actor"),
    "a class": (Yields, r"Yields is a class.*Yields\(\.\.\.\)"),
    "a generator function": (generator, "generator yields its results: return them"),
    "its partial, too": (functools.partial(generator), "yields its results"),
    "an object that yields": (Yields(), "Yields yields its results"),
    "too many parameters": (
        two,
        r"two\(x: Any, y: Any\) -> Any cannot take 1 argument: missing a required argument: 'y'",
    ),
    "too few parameters": (lambda: 0, r"cannot take 1 argument: too many positional arguments"),
    "no function": (5, "5 cannot be called"),
}


@pytest.mark.parametrize("model, why", WRONG.values(), ids=WRONG)
def test_what_cannot_be_a_model(model: Any, why: str) -> None:
    app = App()
    with pytest.raises(TypeError, match=f"^model 'm': .*{why}"):
        app.add_model("m", model, inputs=X, outputs=Y)
    assert app.models == {}
    app.add_model("m", lambda x: x, inputs=X, outputs=Y)


@pytest.mark.parametrize("kind", ["an actor's class", "props", "a method without the actor", "an actor"])
def test_an_actor_is_no_function_of_any_server(kind: str) -> None:
    model, why = WRONG[kind]
    for make in (
        cb.DynamicBatchingServer,
        cb.SequenceBatchingServer,
        cb.ContinuousBatchingServer,
        lambda model: cb.FairShareScheduler(model, tenants={"a": 1}),
        lambda model: App().add_embeddings("m", model),
    ):
        with pytest.raises(TypeError, match=why):
            make(model)


async def test_a_call_of_an_actor_that_the_method_cannot_take() -> None:
    async with cb.device("cpu", isolation="thread") as device:
        ref = device.actor_of(cb.Props(Doubler))
        app = App()
        two_inputs = [Tensor("a", "FP32", [-1]), Tensor("b", "FP32", [-1])]
        for model, inputs, why in (
            (ref, X, f"cannot be called: name its method, and pass {CURE.format('method')}"),
            (ref.call, X, f"gets no method: and pass {CURE.format('method')}"),
            (functools.partial(ref.call, Doubler.double), two_inputs, "double.*too many positional arguments"),
            (functools.partial(ref.call, Doubler.parts), X, "yields its results"),
            (functools.partial(ref.call, two), X, "has no method two"),
        ):
            with pytest.raises(TypeError, match=why):
                app.add_model("m", model, inputs=inputs, outputs=Y)
        for model in (
            functools.partial(ref.call, Doubler.double),
            functools.partial(ref.with_timeout(1.0).call, Doubler.double),
        ):
            App().add_model("m", model, inputs=X, outputs=Y)
            cb.DynamicBatchingServer[Any, Any](model)


async def test_what_can_be_a_model() -> None:
    import numpy as np

    async def plain(x: Any, *, scale: float = 1.0) -> Any:
        return x

    for model in (plain, np.negative, functools.partial(two, 1), functools.partial(two, y=1), np.array([1]).__add__):
        App().add_model("m", model, inputs=X, outputs=Y)
