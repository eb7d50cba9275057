"""Settings of blueprints that do not fit: refused when the server is made, by name, value and cure."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import callboard as cb


def echo(items: list[Any]) -> list[Any]:
    return items


REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "a stage that is a function": (
        lambda: cb.InferenceCascade([echo]),  # type: ignore[list-item]
        TypeError,
        r"a stage is <function echo .*>; give a cb.CascadeStage",
    ),
    "a pool of a function": (
        lambda: cb.ModelReplicaPool(echo),  # type: ignore[arg-type]
        TypeError,
        "replicas is <function echo .*>; give a list of replicas, or a number and `make=`",
    ),
    "tenants that are a list": (
        lambda: cb.FairShareScheduler(echo, tenants=["a"]),  # type: ignore[arg-type]
        TypeError,
        r"tenants is \['a'\]; give a dict of weights, or of cb.Tenant, by name",
    ),
    "a version that is a function": (
        lambda: cb.ModelHotSwapServer(echo),  # type: ignore[arg-type]
        TypeError,
        r"the version is <function echo .*>; give a cb.ModelVersion\(name, load\)",
    ),
    "a text for a number": (
        lambda: cb.DynamicBatchingServer(echo, max_batch="8"),  # type: ignore[arg-type]
        TypeError,
        "max_batch must be an integer, but is '8'",
    ),
    "a fraction": (
        lambda: cb.FairShareScheduler(echo, max_in_flight=2.5),  # type: ignore[arg-type]
        TypeError,
        "max_in_flight must be an integer, but is 2.5",
    ),
    "a number that is too small": (
        lambda: cb.ModelReplicaPool([echo], attempts=0),
        ValueError,
        "attempts must be at least 1, but is 0",
    ),
    "a key that is not a function": (
        lambda: cb.DynamicBatchingServer(echo, bucket=3),  # type: ignore[arg-type]
        TypeError,
        "bucket is 3, which cannot be called",
    ),
    "a choice that is not there": (
        lambda: cb.DynamicBatchingServer(echo, batches=cb.BatchOptions(dispatch="later")),  # type: ignore[arg-type]
        ValueError,
        '\'later\' is not a valid Dispatch: use "adaptive", "idle" or "window"',
    ),
    "text for tokens": (
        lambda: cb.Decode("to be"),  # type: ignore[arg-type]
        TypeError,
        "prefix and stop are tokens, not text: encode it",
    ),
    "text for tokens at which it stops": (
        lambda: cb.Decode([1], stop=["end"]),  # type: ignore[list-item]
        TypeError,
        "prefix and stop are tokens, not text: encode it",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_do_not_fit(case: str) -> None:
    make, error, says = REFUSED[case]
    with pytest.raises(error, match=says):
        make()


def test_integers_of_numpy_fit() -> None:
    assert cb.DynamicBatchingServer(echo, max_batch=np.int64(8)).max_batch == 8  # type: ignore[arg-type]


async def test_a_swap_to_a_function_is_refused() -> None:
    async with cb.ModelHotSwapServer[int, int](cb.ModelVersion("1", lambda: lambda x: x)) as server:
        with pytest.raises(TypeError, match=r"give a cb\.ModelVersion"):
            await server.swap(echo)  # type: ignore[arg-type]
        assert (await server.submit(3)).response == 3


MOVED: dict[str, Callable[..., object]] = {
    "batching": lambda **moved: cb.DynamicBatchingServer(echo, **moved),
    "continuous": lambda **moved: cb.ContinuousBatchingServer(echo, **moved),
    "hot swap": lambda **moved: cb.ModelHotSwapServer(cb.ModelVersion("1", lambda: echo), **moved),
    "mixture of experts": lambda **moved: cb.MoeRouter(echo, [echo, echo], **moved),
    "replicas": lambda **moved: cb.ModelReplicaPool([echo], **moved),
    "speculative": lambda **moved: cb.SpeculativeDecoder(cb.Cacheless(lambda texts, rows: texts), **moved),
}


@pytest.mark.parametrize("server", MOVED)
def test_a_keyword_that_has_moved_says_where_to(server: str) -> None:
    with pytest.raises(
        TypeError, match=r"^overflow= of \w+ has moved: give queue=cb\.QueueOptions\(overflow=\.\.\.\)$"
    ):
        MOVED[server](overflow="block")
    with pytest.raises(TypeError, match="unexpected keyword argument 'overflwo'"):
        MOVED[server](overflwo="block")


@pytest.mark.parametrize(
    "moved, place",
    [
        ("max_queue_cost", "queue=cb.QueueOptions(max_cost=...)"),
        ("pad", "batches=cb.BatchOptions(pad=...)"),
        ("quarantine_key", "quarantine=cb.Quarantine(None, item_key=...)"),
    ],
)
def test_each_place_is_named(moved: str, place: str) -> None:
    with pytest.raises(TypeError, match=re.escape(place)):
        MOVED["batching"](**{moved: None})


def test_a_keyword_that_a_server_never_took_has_not_moved() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'overflow'"):
        cb.SequenceBatchingServer(lambda items, slots: items, overflow="block")  # type: ignore[call-arg]
    assert cb.FairShareScheduler(echo, overflow="block").stats().blocked == 0
