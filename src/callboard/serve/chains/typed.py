"""``TypedModel``: a model at a route of its own, which takes and gives JSON of the application's types."""

import functools
import inspect
import time
import types
import typing
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from callboard.device.client.handle import Device
from callboard.device.client.residents.ref import ResidentRef
from callboard.patterns.batching.server import DynamicBatchingServer
from callboard.patterns.contract.atcall import as_given
from callboard.patterns.contract.options import RequestOptions
from callboard.patterns.fairshare.server import FairShareScheduler
from callboard.patterns.hotswap.versions import ModelVersion
from callboard.patterns.requests.passage import PASSAGE, Passage
from callboard.patterns.requests.server import RequestServer
from callboard.serve.calls import CallServer
from callboard.serve.chains.chain import Chain, Tenants, server_of
from callboard.serve.chains.served import Served
from callboard.serve.chains.versions import Versions, named
from callboard.serve.encoding.typed import Kind
from callboard.serve.models import WAITED, Model, RequestNote, on_host

__all__ = ["TypedModel", "WithRoutes"]

END: Any = object()
"""In place of a part after the last one."""

OURS = ("/v2", "/metrics", "/docs", "/openapi.json")
OURS_OF_V1 = ("/v1/models", "/v1/embeddings", "/v1/completions", "/v1/chat/completions")


class TypedModel(Model):
    """A model at a route of its own.

    Attributes:
        path: Path of the route.
        request: The type of its requests.
        response: The type of its responses, or of their parts.
        streams: Its responses come in parts.
    """

    def __init__(
        self,
        name: str,
        version: str,
        chain: Chain,
        device: Device | None,
        path: str,
        request: Kind,
        response: Kind,
        streams: bool,
    ) -> None:
        super().__init__(name, version, chain, device)
        self.path = path
        self.request = request
        self.response = response
        self.streams = streams

    @property
    def url(self) -> str:
        """Path of its URL."""
        return self.path

    def _item(self, value: Any) -> Any:
        return (value,) if isinstance(self.chain.last, CallServer) else value

    async def answer(self, value: Any, *, timeout: float | None, tenant: Hashable) -> bytes:
        """The response to a request.

        Raises:
            BadModelResult: The result is not of the type of responses.
            Exception: Raised by ``submit`` of the server.
        """
        with RequestNote(self):
            return self.response.write(await on_host(await self._submit(self._item(value), tenant, timeout)))

    async def parts(self, value: Any, *, timeout: float | None, tenant: Hashable) -> AsyncGenerator[bytes, None]:
        """The parts of the response to a request; raises as :meth:`answer`."""
        options: RequestOptions = {"timeout": timeout}
        if isinstance(self.server, FairShareScheduler):
            options["tenant"] = tenant
        passage, started = Passage(WAITED.get()), time.monotonic()
        try:
            with RequestNote(self):
                async with aclosing(as_given(self.server.stream)(self._item(value), **options)) as stream:
                    mark = PASSAGE.set(passage)
                    try:
                        part = await anext(stream, END)  # the request enters the server
                    finally:
                        PASSAGE.reset(mark)
                    while part is not END:
                        yield self.response.write(await on_host(part))
                        part = await anext(stream, END)
                self.total_time.add(passage.waited + time.monotonic() - started)
        finally:
            self.left_queue(passage)


class WithRoutes(Served):
    """Base of :class:`App`: models at routes of their own.

    Attributes:
        own: The names of these models, by path.
    """

    def __init__(self) -> None:
        super().__init__()
        self.own: dict[str, str] = {}

    def add_route(
        self,
        path: str,
        model: Callable[[Any], Any]
        | RequestServer[Any, Any]
        | ModelVersion
        | Mapping[str, Callable[[Any], Any] | RequestServer[Any, Any] | ModelVersion]
        | Sequence[ModelVersion],
        *,
        request: Any = None,
        response: Any = None,
        stream: bool = False,
        name: str | None = None,
        version: str | None = None,
        device: Device | None = None,
        concurrency: int = 1,
        max_queue: int = 1024,
        tenants: Tenants | None = None,
        idempotent: bool = True,
        run_limit: float | None = None,
    ) -> None:
        """Serve a model at a route of its own: ``POST path``, with JSON of the application's types.

        ::

            class Review(msgspec.Struct):
                text: str


            def classify(review: Review) -> Label: ...


            app.add_route("/classify", classify)

        Args:
            path: Path of the URL.
            model: As for :meth:`App.add_model`, but it gets one value of the type ``request``, and returns one of the
                type ``response``. The items of a ``DynamicBatchingServer`` are single requests. An async generator
                function answers in parts.
            request: A ``msgspec.Struct``, a dataclass, a ``TypedDict``, a plain type such as ``list[float]``, or a
                model of pydantic. Bodies that are not of this type get 400, which names the field. None: that of the
                annotations of the function; a batch function takes a ``list`` of it.
            response: Likewise; results of other types are converted. None: that of the annotations, or any.
            stream: The response is the parts that ``stream`` of the server yields, as server-sent events.
            name: Name of the model, for metrics and for the URLs of ``/v2/models``; None: the path without the slash
                at its beginning.
            version, device, concurrency, max_queue, tenants, idempotent, run_limit: See :meth:`App.add_model`.

        Raises:
            ValueError: The path or the name is taken, or cannot be one; an argument is out of range.
            TypeError: ``model`` cannot be called with one argument, or the type of requests is not known or has no
                JSON.
            RuntimeError: The app accepts requests already.
        """
        self._check_path(path)
        name = path[1:] if name is None else name
        given, default = named(name, model, version)
        found = [_types_of(each) for each in given.values()]
        taken, returned = request, response
        if taken is None:
            taken = next((each for each, _ in found if each is not None), None)
        if taken is None:
            raise TypeError(
                f"route {path!r}: the type of requests is not known, as the model's parameter has no annotation; give "
                "request=, such as a msgspec.Struct"
            )
        if returned is None:
            returned = next((each for _, each in found if each is not None), Any)
        kinds = Kind(taken, f"the request of {path!r}"), Kind(returned, f"the response of {path!r}")
        streams = stream or any(inspect.isasyncgenfunction(_called(each)[0]) for each in given.values())

        def make(version: str, model: Any) -> Model:
            chain = server_of(model, name, concurrency, max_queue, tenants, idempotent=idempotent, run_limit=run_limit)
            return TypedModel(name, version, chain, device, path, *kinds, streams)

        self._check_new(name)
        self._serve(Versions(name, make, given, default))
        self.own[path] = name

    def _check_path(self, path: str) -> None:
        if not path.startswith("/") or path == "/" or set(path) & set("{}?# ") or "//" in path:
            raise ValueError(f"route {path!r}: give a path such as '/classify', without parameters")
        if path in OURS_OF_V1 or any(path == each or path.startswith(f"{each}/") for each in OURS):
            raise ValueError(f"route {path!r}: the app itself answers there")
        if path in self.own:
            raise ValueError(f"route {path!r}: there is one already")


def _called(model: Any) -> tuple[Any, tuple[Any, ...]]:
    """The function that a model calls, and the arguments that are bound to it."""
    bound: tuple[Any, ...] = ()
    if isinstance(model, DynamicBatchingServer):
        model = model.batch_fn
    while isinstance(model, functools.partial):
        model, bound = model.func, (*model.args, *bound)
    return model, bound


def _types_of(model: Any) -> tuple[Any, Any]:
    """The types that a model's annotations name, of a request and of a response; None where they name none."""
    batches = isinstance(model, DynamicBatchingServer)
    if isinstance(model, RequestServer | ModelVersion) and not batches:
        return None, None
    function, bound = _called(model)
    skipped = len(bound)
    if isinstance(getattr(function, "__self__", None), ResidentRef) and bound:
        function = bound[0]  # the method, whose first parameter is the actor
    elif not inspect.isroutine(function):
        function, skipped = type(function).__call__, skipped + 1
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        names = list(inspect.signature(function).parameters)[skipped:]
    except (TypeError, ValueError, NameError):
        return None, None
    request, response = hints.get(names[0]) if names else None, hints.get("return")
    if batches:
        return _element(request), _element(response)
    origin = typing.get_origin(response)
    if isinstance(origin, type) and issubclass(origin, AsyncIterable | Awaitable):
        response = typing.get_args(response)[0]
    return request, response


def _element(kind: Any) -> Any:
    """The type of the elements of a list; the errors among them are none of it."""
    given = typing.get_args(kind)
    if not given:
        return None
    if isinstance(given[0], types.UnionType) or typing.get_origin(given[0]) is typing.Union:
        kept = [each for each in typing.get_args(given[0]) if not _is_error(each)]
        return typing.Union[tuple(kept)] if kept else None  # noqa: UP007 -- made of a tuple
    return given[0]


def _is_error(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)
