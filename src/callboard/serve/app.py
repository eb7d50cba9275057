"""``App``: models behind HTTP. It is an ASGI application; ``callboard serve`` and ``cb.serve`` run it."""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Container,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from callboard.device.client.handle import Device
from callboard.events.names import check_name
from callboard.patterns.contract.checks import check_choice
from callboard.patterns.contract.hooks import hashable
from callboard.patterns.hotswap.versions import ModelVersion
from callboard.patterns.requests.needs import limit_runs
from callboard.patterns.requests.runs import RunLimit
from callboard.patterns.requests.server import RequestServer
from callboard.serve.chains.chain import Tenants, server_of
from callboard.serve.chains.embedding import EmbeddingModel, words
from callboard.serve.chains.typed import WithRoutes
from callboard.serve.chains.versions import Versions, named
from callboard.serve.encoding.regions import Regions
from callboard.serve.errors import needs_extra
from callboard.serve.figures import Figures
from callboard.serve.generation.model import TextModel
from callboard.serve.http.limits import EdgeLimits
from callboard.serve.http.noted import noted
from callboard.serve.http.reports import Reports
from callboard.serve.http.rights import Keys, Right, Rights, Ruled
from callboard.serve.http.tokens import checked_key
from callboard.serve.http.tracing import Tracer
from callboard.serve.models import Model, TensorModel, check_tensors
from callboard.serve.tensors import Tensor

__all__ = ["App", "EdgeLimits"]


class _State(Enum):
    NEW = "not started: enter `async with app.running()`, in the lifespan of the app that mounts it"
    STARTING = "starting"
    OPEN = "open"
    DRAINING = "draining"


class App(WithRoutes, Ruled):
    """Models that are asked over HTTP: the Open Inference Protocol v2, OpenAI's API, routes of one's own, ``/metrics``.

    ::

        app = App()
        app.add_model(
            "double", lambda x: 2 * x, inputs=[Tensor("x", "FP32", [-1])], outputs=[Tensor("y", "FP32", [-1])]
        )

    Args:
        name: Name of the server in ``/v2``.
        lifespan: ``lifespan(app)`` is entered before requests are accepted and left after the last one: an
            ``asynccontextmanager`` that opens devices and adds models. Until then ``/v2/health/ready`` returns 503, and
            ``/v2/health/live`` 200. Devices that it opens live in processes of their own (``isolation="process"``) and
            come back by themselves when they have lost many contexts (``on_exhausted="half_open"``), unless its
            arguments or the environment say otherwise.
        token: Clients must send ``Authorization: Bearer <token>``, else they get 401; not for ``/v2/health``. It has
            all rights.
        rights: Who may do what, beside ``token``: ``rights(headers)`` returns the set of rights that a request with
            these headers has, of ``"infer"``, ``"control"`` and ``"read"``; it may raise :class:`HttpError`. Or the
            rights by key, for clients that send ``Authorization: Bearer <key>``. Without the right that its route needs
            a request gets 403.
        tenant: ``tenant(headers)`` names the tenant of a request, for models that are shared by ``tenants``. It may
            raise :class:`HttpError`, for instance with status 401.
        model_control: Clients with the right ``"control"`` may load and unload models: those that were given as
            ``ModelVersion``. This, ``shared_memory`` and ``trace_file`` need ``token`` or ``rights``.
        shared_memory: Clients on this machine may send and get tensors in POSIX shared memory whose key begins with
            this text (the system shared memory extension). It is theirs to read and change then; Linux only.
        trace_file: Times of sampled inference requests may be written there, as lines of JSON; clients choose which
            requests (the trace extension), and none is until they do.
        dashboard: ``/dashboard`` shows devices, actors and models to clients with the right ``"read"``, and telemetry
            of the devices that ``lifespan`` opens is on. It needs ``token`` or ``rights``, except where ``callboard
            serve`` serves this machine only.
        limits: See :class:`EdgeLimits`.

    Raises:
        ValueError: ``shared_memory`` is empty, or not the beginning of a key; ``token`` or a key is empty, or not
            visible ASCII.
        TypeError: ``rights`` is neither a function nor sets of rights by key.
    """

    def __init__(
        self,
        name: str = "callboard",
        *,
        lifespan: "Callable[[App], AbstractAsyncContextManager[Any]] | None" = None,
        token: str | None = None,
        rights: Rights | Mapping[str, Collection[Right]] | None = None,
        tenant: Callable[[Mapping[str, str]], Hashable] | None = None,
        model_control: bool = False,
        shared_memory: str | None = None,
        trace_file: str | Path | None = None,
        dashboard: bool = False,
        limits: EdgeLimits | None = None,
    ) -> None:
        if rights is not None and not (callable(rights) or isinstance(rights, Mapping)):
            raise TypeError(f"rights is {rights!r}; it must be a function of the headers, or sets of rights by key")
        super().__init__()
        check_name("an app", name)
        self.name = name
        self.token = None if token is None else checked_key("token", token)
        self.rights: Rights | None = Keys(rights) if isinstance(rights, Mapping) else rights
        self.model_control = model_control
        self.regions = None if shared_memory is None else Regions(shared_memory)
        self.tracer = None if trace_file is None else Tracer(trace_file)
        self.dashboard = dashboard
        self._tenant = tenant
        self.limits = limits or EdgeLimits()
        self.figures = Figures()
        self.reports = Reports()
        self.bodies = 0  # bytes of the bodies of open requests
        self.all_figures: Callable[[], Awaitable[str]] | None = None  # /metrics, if this is one of several workers
        self.stopped = False  # requests that are cancelled get 503
        self._lifespan = lifespan
        self._state = _State.NEW
        self._leaving = False
        self._asgi: Any = None

    # -- models --------------------------------------------------------------------------------------------------------

    def add_model(
        self,
        name: str,
        model: Callable[..., Any]
        | RequestServer[Any, Any]
        | ModelVersion
        | Mapping[str, Callable[..., Any] | RequestServer[Any, Any] | ModelVersion]
        | Sequence[ModelVersion],
        *,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        version: str | None = None,
        device: Device | None = None,
        concurrency: int = 1,
        max_queue: int = 1024,
        tenants: Tenants | None = None,
        idempotent: bool = True,
        run_limit: float | None = None,
    ) -> None:
        """Serve a model under ``/v2/models/<name>``.

        Args:
            name: Name of the model in URLs.
            model: A function, plain or async, or ``functools.partial(actor.call, Class.method)`` of a resident actor,
                which gets the arrays in the order of ``inputs``. Or a ``DynamicBatchingServer``, whose items are the
                array of a request, or the tuple of them if there are several inputs; it is started and drained with
                the app. Or a ``SequenceBatchingServer``, whose items are the same: the parameters ``sequence_id``,
                ``sequence_start`` and ``sequence_end`` of a request name its sequence. Or a ``ModelVersion`` that loads
                a function or a server: the app loads it, and it can be replaced while requests run. It returns the
                outputs as a dict, as a tuple in the order of ``outputs``, or the only one by itself. Arrays are
                NumPy's or ``GpuRef``. Or several versions: a dict of these by version, or a list of ``ModelVersion`` s.
                All are loaded and served under ``/v2/models/<name>/versions/<version>``; see :meth:`swap`.
            inputs, outputs: Names, datatypes and shapes; requests that do not fit get 400.
            version: Version in URLs and responses; of several versions, the default, which gets the requests that name
                none. None: that of a ``ModelVersion``, else ``"1"``; of several, the first.
            device: Device that the model computes on, if it is not found in the function: devices and resident actors
                in a ``functools.partial``, in the variables of a nested function, in attributes of an object, and
                behind a server are. While one opens, replaces a lost context, or is set up, the model is not ready,
                and requests wait (``limits.ready_timeout``). When a device has stopped for good, the app is not live.
            concurrency: Calls of a function that run at once. Plain functions run on threads.
            max_queue: Requests that wait for a function at most; beyond that the status is 429.
            tenants: Weights or settings, as for ``FairShareScheduler``: requests share the model by these. See
                ``tenant`` of :class:`App`.
            idempotent: A function may run again for the same request: after a lost context it does, and a request that
                causes such losses is found and gets 422 (:class:`Quarantine`). False: the client gets 500. A server has
                a setting of its own.
            run_limit: Seconds of a call of the function at most, or of a batch; then its requests fail with
                ``BudgetSpent``, 504, and a call of a resident actor that still does not return costs the actor's
                process, which frees the device for others. Not for plain functions, which run on threads. None: calls
                end with their clients (``abandoned_after``).

        Raises:
            ValueError: The name is taken, or an argument is out of range.
            TypeError: ``model`` cannot be called with the arrays of ``inputs``, or is a class, such as that of a
                resident actor, in place of a call of the actor; or ``run_limit`` cannot end its calls.
            RuntimeError: The app accepts requests already.
        """
        check_tensors(name, inputs=inputs, outputs=outputs)
        given, default = named(name, model, version)

        def make(version: str, model: Any) -> Model:
            options: dict[str, Any] = {"arguments": len(inputs), "idempotent": idempotent, "run_limit": run_limit}
            chain = server_of(model, name, concurrency, max_queue, tenants, **options)
            return TensorModel(name, version, chain, device, inputs, outputs)

        self._check_new(name)
        self._serve(Versions(name, make, given, default))

    async def add_onnx(
        self,
        name: str,
        path: str | Path,
        device: Device | Sequence[Device],
        *,
        version: str = "1",
        max_batch: int = 1,
        max_queue: int = 1024,
        threads: int = 0,
        engine: Literal["onnxruntime", "callboard"] | None = None,
        budget: float = 30.0,
        tenants: Tenants | None = None,
    ) -> None:
        """Serve an ONNX file under ``/v2/models/<name>``, on a device; for ``lifespan``.

        Inputs and outputs are those that the file declares; outputs that are not tensors are left out. Clients may
        reload it, with ``model_control``.

        Args:
            name, version, max_queue, tenants: See :meth:`add_model`.
            path, device: The file, and where it computes: of several, each has a replica (:class:`ModelReplicaPool`).
            max_batch: Rows of a batch at most, and of a request, which is 413 beyond that. Requests are joined along
                the first axis of all tensors, which must be open in the file. 1: each runs by itself, of any size.
            threads: Threads of a call of ONNX Runtime on the CPU; 0: all that the process may use.
            engine: ``"onnxruntime"`` or ``"callboard"``, the ops of the device; None: as ``dev.engine.build`` chooses.
                Texts need ONNX Runtime, which computes on CUDA with the package onnxruntime-gpu only.
            budget: Seconds of an execution, ``request_timeout`` at most: then its requests are 504.

        Raises:
            OSError: The file cannot be read.
            BackendUnavailable: ONNX Runtime is not installed (extra ``onnx``).
            LibraryError, ActorStopped: ONNX Runtime refuses the file.
            UnsupportedOp: The engine lacks operators of the model; names all of them.
            ValueError, RuntimeError: As for :meth:`add_model`; also raised if the file is no model, its inputs are not
                tensors, or cannot be joined.
        """
        from callboard.serve.bundled.onnx import RunOptions, check_budget, onnx_replicas

        self._check_new(name)  # before anything is opened
        if engine is not None:
            check_choice("engine", engine, "onnxruntime", "callboard")
        if threads and engine == "callboard":
            raise ValueError(f"threads is {threads}, which is for ONNX Runtime; leave it out with engine='callboard'")
        run = RunOptions(threads, engine, min(check_budget(budget), self.limits.request_timeout or budget))
        model, file = await onnx_replicas(device, Path(path), run, max_batch=max_batch, max_queue=max_queue)
        inputs, outputs = file.tensors()
        self.add_model(
            name,
            model,
            inputs=inputs,
            outputs=outputs,
            version=version,
            device=device if isinstance(device, Device) else None,
            max_queue=max_queue,
            tenants=tenants,
        )

    def add_embeddings(
        self,
        name: str,
        model: Callable[[list[Any]], Any]
        | RequestServer[Any, Any]
        | ModelVersion
        | Mapping[str, Callable[[list[Any]], Any] | RequestServer[Any, Any] | ModelVersion]
        | Sequence[ModelVersion],
        *,
        version: str | None = None,
        device: Device | None = None,
        concurrency: int = 1,
        max_queue: int = 1024,
        tenants: Tenants | None = None,
        idempotent: bool = True,
        run_limit: float | None = None,
        tokenize: Callable[[Any], Any] | None = None,
        count_tokens: Callable[[Any], int] | None = None,
        dimensions: Container[int] = (),
        vocabulary: int | None = None,
    ) -> None:
        """Serve a model under ``/v1/embeddings``, and under ``/v2`` as one that takes ``text`` and gives ``embedding``.

        Args:
            name: Name in the field ``model`` of requests.
            model: A function that gets the list of a request's inputs and returns a vector for each: texts, or, with
                ``vocabulary``, lists of tokens if the client sends these. Or a ``DynamicBatchingServer`` of single
                inputs, or a ``ModelVersion`` that loads one. Or several versions, as for :meth:`add_model`.
            version, device, concurrency, max_queue, tenants, idempotent, run_limit: See :meth:`add_model`. With
                ``tokenize``, tenants share tokens, else requests.
            tokenize: Function that converts an input, a text or a list of tokens, to the server's item; called on a
                thread if requests are long. It may raise :class:`BadRequest`.
            count_tokens: Function that returns the number of tokens of a server's item, for the usage in responses.
                Without it, the length of a list of tokens, and the number of words of a text.
            dimensions: Lengths of vectors that clients may ask for beside the model's own, such as ``(256, 512)``: the
                first components, scaled to length 1. For models that were trained for it.
            vocabulary: Number of the model's tokens: clients may send lists. Without it and ``tokenize`` these get 400.

        Raises:
            ValueError, TypeError, RuntimeError: As for :meth:`add_model`.
        """
        count = count_tokens or words
        more: dict[str, Any] = {"run_limit": run_limit, **({} if tokenize is None else {"cost": count})}
        given, default = named(name, model, version)

        def make(version: str, model: Any) -> Model:
            chain = server_of(model, name, concurrency, max_queue, tenants, idempotent=idempotent, **more)
            return EmbeddingModel(name, version, chain, device, tokenize, count, dimensions, vocabulary)

        self._check_new(name)
        self._serve(Versions(name, make, given, default))

    def add_decoder(
        self,
        name: str,
        decoder: RequestServer[Any, Any],
        *,
        encode: Callable[[str], Sequence[int]],
        decode: Callable[[list[int]], str],
        eos: int | Iterable[int] = (),
        chat: Callable[..., str | Sequence[int]] | None = None,
        max_tokens: int = 1024,
        takes: Collection[str] = (),
        vocabulary: int | None = None,
        version: str = "1",
        device: Device | None = None,
        run_limit: float | None = None,
    ) -> None:
        """Serve a model that generates text: under ``/v1/completions``, and ``/v2/models/<name>/generate[_stream]``.

        Args:
            name: Name in the field ``model`` of requests, and in URLs.
            decoder: A ``SpeculativeDecoder``, a ``ContinuousBatchingServer`` whose parts are tokens, or another server
                whose ``stream`` yields tokens. Its items are ``Decode`` s: the step function reads ``item.prefix``,
                ``item.max_new_tokens``, ``item.temperature`` and ``item.seed``. It is started and drained with the app.
            encode: Tokens of a prompt.
            decode: Text of tokens; called with a few at a time.
            eos: Tokens that end a text, and are not part of it: those of the decoder. Where they are given, a text that
                ends without one was cut, and is reported so.
            chat: Function that returns the prompt, a text or tokens, for a list of messages, for
                ``/v1/chat/completions``. If it raises ``KeyError``, ``TypeError`` or ``ValueError``, the client gets
                400. Contents are texts; lists with others need ``takes``. None: the endpoint returns 404.
            max_tokens: New tokens of a request at most; it may ask for less.
            takes: Names of further parameters that the decoder reads from ``item.parameters``: ``"top_p"``,
                ``"logit_bias"``, ``"response_format"``, … Others get 400 unless their values are neutral. With
                ``"tools"``, ``chat`` is called with ``tools=`` where a request has some; with ``"image_url"``,
                ``"input_audio"`` or ``"file"`` it gets lists with such parts. With ``"logprobs"``, the decoder yields
                ``(token, logprob)``, or ``(token, logprob, {other: its logprob})``, in place of tokens.
            vocabulary, version, device: See :meth:`add_embeddings`; lists of tokens are taken without it, too.
            run_limit: As for :meth:`add_model`, of a step.

        Raises:
            ValueError: The name is taken, or an argument is out of range.
            TypeError: ``decoder`` is not a server, or ``run_limit`` cannot end its calls.
            RuntimeError: The app accepts requests already.
        """
        given: Any = decoder
        if not isinstance(given, RequestServer):
            raise TypeError(f"model {name!r}: decoder is {decoder!r}, and must be a server, such as SpeculativeDecoder")
        if run_limit is not None:
            limit_runs(decoder, RunLimit(run_limit, name))
        self._add(
            TextModel(
                *(name, version, decoder, device),
                encode=encode,
                decode=decode,
                eos=eos,
                chat=chat,
                most=max_tokens,
                takes=takes,
                vocabulary=vocabulary,
            )
        )

    def _check_new(self, name: str) -> None:
        if self._state not in (_State.NEW, _State.STARTING):
            raise RuntimeError(f"model {name!r}: models are added before the app accepts requests, or in lifespan")
        super()._check_new(name)

    def tenant_of(self, headers: Mapping[str, str]) -> Hashable:
        """The tenant of a request with these headers; None if the app names none.

        Raises:
            Exception: Raised by ``tenant``.
        """
        if self._tenant is None:
            return None
        tenant: Hashable = hashable("tenant", self._tenant(headers))
        if (about := noted.get()) is not None:
            about.tenant = tenant
        return tenant

    # -- life ----------------------------------------------------------------------------------------------------------

    @property
    def accepting(self) -> bool:
        """True if the app accepts requests, other limits aside."""
        return self._state is _State.OPEN

    @property
    def draining(self) -> bool:
        """True from :meth:`leave` or :meth:`drain` on."""
        return self._leaving or self._state is _State.DRAINING

    @property
    def phase(self) -> str:
        """What the app does, in words."""
        return (_State.DRAINING if self.draining else self._state).value

    async def until_ready(self, model: Model) -> None:
        """Wait until a request may go to a model; raises as :meth:`Model.until_ready`."""
        await model.until_ready(self.limits.ready_timeout)

    @property
    def drain_timeout(self) -> float:
        """Seconds that accepted requests have at the end, and those of a version that is replaced."""
        return self.limits.drain_timeout

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Enter ``lifespan``, start the models, and accept requests; at the end drain and leave it.

        Raises:
            RuntimeError: The app ran before.
            ValueError: Raised by :meth:`check_rules`.
        """
        if self._state is not _State.NEW:
            raise RuntimeError(f"{self.name} ran before: make another App")
        self.check_rules()
        self._state = _State.STARTING
        if self._lifespan is None:
            async with self._open_models():
                yield
        else:
            async with AsyncExitStack() as stack:
                with self._opening():
                    await stack.enter_async_context(self._lifespan(self))
                await stack.enter_async_context(self._open_models())
                yield

    @asynccontextmanager
    async def _open_models(self) -> AsyncIterator[None]:
        try:
            for model in self.served:
                await model.chain.start()
            self._state = _State.OPEN
            yield
        finally:
            await self.drain()
            if self.regions is not None:
                self.regions.unregister()
            if self.tracer is not None:
                self.tracer.flush()
            self.reports.flush()

    def leave(self) -> None:
        """Report not ready, and end each connection with its next response; :meth:`drain` follows."""
        self._leaving = True

    async def drain(self, timeout: float | None = None) -> None:
        """Stop accepting requests and finish the accepted ones, in this many seconds (``limits.drain_timeout``)."""
        self._state = _State.DRAINING
        if self.stopped:
            return
        for versions in self.versions.values():
            versions.end_trial()
        seconds = self.limits.drain_timeout if timeout is None else timeout
        await asyncio.gather(*(model.chain.drain(seconds) for model in self.served))

    async def stop(self) -> None:
        """Accept no more requests and wait for none, on devices neither: what has not ended gets 503. Ends a drain."""
        self._state = _State.DRAINING
        self.stopped = True
        self._hurry()
        await asyncio.gather(*(model.chain.stop() for model in self.served))

    # -- ASGI ----------------------------------------------------------------------------------------------------------

    def load(self) -> Any:
        """Make the Starlette application that answers, if it is not there yet, and return it.

        Raises:
            BackendUnavailable: Starlette is not installed.
        """
        if self._asgi is None:
            with needs_extra():
                from callboard.serve.routes import asgi
            self._asgi = asgi(self)
        return self._asgi

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request; for ASGI servers. Raises as :meth:`load`."""
        await self.load()(scope, receive, send)
