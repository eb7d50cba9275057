"""``needs_of``: the resident actors and devices that a model calls, found in the model itself.

A model is ready when these are. They are found where programs keep them: in a ``functools.partial``, in a bound method,
in the variables of a nested function, in attributes, in the lists and dicts of these, and behind a server. What is made
during a call, or kept elsewhere, is not found: name its device with ``device=``. ``contexts_of`` has the contexts that
they live in, of which figures are kept.
"""

import functools
import itertools
import types
from collections.abc import Iterable, Iterator
from typing import Any

from callboard.device.client.handle import Device
from callboard.device.client.line.port import OpPort
from callboard.device.client.residents.ref import ResidentRef
from callboard.patterns.requests.calling import UserCall
from callboard.patterns.requests.runs import RunLimit
from callboard.patterns.requests.server import RequestServer

__all__ = ["Need", "contexts_of", "is_ready", "limit_runs", "needs_of"]

Need = ResidentRef[Any] | Device

MOST = 256
"""Objects that are looked at, and that a container may have."""


def needs_of(model: Any, *, spare: bool = False) -> list[Need]:
    """The actors and devices that are found in a model: a function, another callable, or a server.

    Args:
        model: The model.
        spare: With those that a server can answer without, such as the replicas of a pool.
    """
    found: list[Need] = []
    seen: dict[int, Any] = {}  # which keeps them: no other object gets such an id
    todo = [model]
    while todo and len(seen) < MOST:
        each = todo.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            if isinstance(each, ResidentRef | Device):
                found.append(each)
            else:
                todo += _parts(each)
                if spare and isinstance(each, RequestServer):
                    todo += each._may_run_on()
    return found


def contexts_of(needs: Iterable[Need]) -> list[OpPort]:
    """The ports of the contexts of these devices and actors, each once: an actor's own process has one."""
    ports = [need._residents.port if isinstance(need, ResidentRef) else need._port for need in needs]
    return list({id(port): port for port in ports}.values())


def limit_runs(model: RequestServer[Any, Any] | UserCall, limit: RunLimit) -> None:
    """Bound each run of a model's function from now on, also where a batching server calls it with several items.

    Raises:
        TypeError: Its runs cannot be ended; the text names the cure.
    """
    calls = [model] if isinstance(model, UserCall) else [e for e in model._runs_on() if isinstance(e, UserCall)]
    if not calls or any(isinstance(getattr(e.function, "__self__", None), RequestServer) for e in calls):
        raise TypeError(
            f"model {limit.model!r}: run_limit is {limit.seconds:g}, but {type(model).__name__} passes requests on to "
            "others, where they wait: leave it out, and serve those with a run_limit"
        )
    for call in calls:
        call.limit(limit)


def _parts(thing: Any) -> Iterable[Any]:
    """The objects in which a thing of a known kind keeps what it calls."""
    match thing:
        case RequestServer():
            return thing._runs_on()
        case functools.partial():
            return [thing.func, *thing.args, *thing.keywords.values()]
        case types.MethodType():
            owner = thing.__self__
            known = isinstance(owner, ResidentRef | Device | RequestServer)
            return [thing.__func__, owner, *(() if known else _attributes(owner))]
        case types.FunctionType():
            return _variables(thing)
        case list() | tuple() | dict():
            items = thing.values() if isinstance(thing, dict) else thing
            return list(itertools.islice(items, MOST))
        case type() | types.ModuleType():
            return ()
    return _attributes(thing) if callable(thing) else ()


def _variables(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it is not assigned yet
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for name in function.__code__.co_names:  # of a module: its functions and classes are not followed
        found = function.__globals__.get(name)
        if isinstance(found, ResidentRef | Device | RequestServer | functools.partial):
            yield found


def _attributes(thing: Any) -> list[Any]:
    found: dict[str, Any] = getattr(thing, "__dict__", {})
    return list(itertools.islice(found.values(), MOST))


def is_ready(need: Need) -> bool:
    """True if it would answer now."""
    return need.state == "ready" if isinstance(need, ResidentRef) else need.health().ok
