"""Handlers of the Open Inference Protocol v2, under ``/v2``."""

from collections.abc import Callable
from typing import Any

import msgspec

import callboard
from callboard.patterns.hotswap.canary import TRIAL_TIMEOUT, Canary
from callboard.serve.app import App
from callboard.serve.chains.embedding import EmbeddingModel
from callboard.serve.edge import Body, decode_json
from callboard.serve.encoding.messages import HEADER_LENGTH, encoded, encoding_weight, parsed, weight_of
from callboard.serve.encoding.regions import Regions
from callboard.serve.errors import BadRequest, HttpError, ModelStopped
from callboard.serve.http.compression import LARGE, off_loop
from callboard.serve.http.request import Request
from callboard.serve.http.tracing import Tracer
from callboard.serve.models import Model, TensorModel
from callboard.serve.statistics import statistics_of

__all__ = [
    "ControlRequest",
    "IndexRequest",
    "RegionRequest",
    "config",
    "index",
    "infer",
    "live",
    "load",
    "model_metadata",
    "model_ready",
    "model_statistics",
    "ready",
    "region_status",
    "register_region",
    "server_metadata",
    "statistics",
    "trace_setting",
    "unload",
    "unregister_region",
    "update_trace_setting",
]

EXTENSIONS = [
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "schedule_policy",
    "sequence",
    "statistics",
]
PLATFORM = "callboard"


async def live(app: App, request: Request, body: memoryview) -> Body:
    """The process answers, and no device that a model needs has stopped for good."""
    why = app.why_not_live()
    if why is not None:
        raise ModelStopped(why)
    return Body({"live": True})


async def ready(app: App, request: Request, body: memoryview) -> Body:
    """Requests are accepted, and the devices of all models are ready."""
    app.check_ready()
    return Body({"ready": True})


async def server_metadata(app: App, request: Request, body: memoryview) -> Body:
    """Name, version and extensions of the server."""
    more = [] if app.regions is None else ["system_shared_memory"]
    more += [] if app.tracer is None else ["trace"]
    return Body({"name": app.name, "version": callboard.__version__, "extensions": [*EXTENSIONS, *more]})


async def model_metadata(app: App, request: Request, body: memoryview) -> Body:
    """Inputs and outputs of a model."""
    model = _model(app, request)
    return Body(
        {
            "name": model.name,
            "versions": list(app.versions[model.name].all),
            "platform": PLATFORM,
            "inputs": [_described(tensor) for tensor in model.inputs],
            "outputs": [_described(tensor) for tensor in model.outputs],
        }
    )


async def model_ready(app: App, request: Request, body: memoryview) -> Body:
    """A model can be asked."""
    model = _model(app, request)
    app.check_accepting()
    model.check_ready()
    return Body({"name": model.name, "ready": True})


async def config(app: App, request: Request, body: memoryview) -> Body:
    """A model as Triton's configurations describe one. Batches are not part of its shapes: ``max_batch_size`` is 0."""
    model = _model(app, request)
    return Body(
        {
            "name": model.name,
            "platform": PLATFORM,
            "backend": PLATFORM,
            "max_batch_size": 0,
            "input": [_configured(tensor) for tensor in model.inputs],
            "output": [_configured(tensor) for tensor in model.outputs],
            **({"sequence_batching": {}} if isinstance(model, TensorModel) and model.has_sequences else {}),
        }
    )


async def infer(app: App, request: Request, body: memoryview) -> Body:
    """Run a model."""
    app.check_accepting()
    model = _with_tensors(app.route(request.path_params["model"], request.path_params.get("version")))
    await app.until_ready(model)
    trace = None if app.tracer is None else app.tracer.begin(model.name, model.version)
    if trace is None:
        return await _answered(app, model, request, body)
    try:
        return await _answered(app, model, request, body, trace.mark)
    finally:
        trace.end()


async def _answered(
    app: App,
    model: TensorModel | EmbeddingModel,
    request: Request,
    body: memoryview,
    mark: Callable[[str], None] = lambda step: None,
) -> Body:
    header = request.headers.get(HEADER_LENGTH)
    asked = await off_loop(
        weight_of(len(body), header, model.inputs),
        lambda: parsed(body, header, model.inputs, model.outputs, app.regions),
    )
    mark("QUEUE_START")
    limits = [seconds for seconds in (asked.timeout, app.limits.request_timeout) if seconds is not None]
    results = await model.infer(
        asked.arrays,
        timeout=min(limits, default=None),
        priority=asked.priority,
        tenant=app.tenant_of(request.headers),
        sequence=asked.sequence,
    )
    mark("COMPUTE_END")
    size = encoding_weight(asked, results, LARGE)
    return await off_loop(size, lambda: Body(*encoded(model.name, model.version, asked, results, app.regions)))


async def statistics(app: App, request: Request, body: memoryview) -> Body:
    """Figures of all models."""
    return Body({"model_stats": [statistics_of(model) for model in app.served]})


async def model_statistics(app: App, request: Request, body: memoryview) -> Body:
    """Figures of one model."""
    return Body({"model_stats": [statistics_of(_any_model(app, request))]})


class IndexRequest(msgspec.Struct):
    """The body of ``/v2/repository/index``, if there is one."""

    ready: bool = False


async def index(app: App, request: Request, body: memoryview) -> Body:
    """All models, or those that are ready."""
    only_ready = bool(body) and (await decode_json(body, IndexRequest)).ready
    found: list[dict[str, str]] = []
    for model in app.served:
        why = app.why_not_ready() if not app.accepting else model.why_not_ready()
        if why is None or not only_ready:
            state = "READY" if why is None else "UNAVAILABLE"
            found.append({"name": model.name, "version": model.version, "state": state, "reason": why or ""})
    return Body(found)


class CanaryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The trial of a version before it gets all requests; see :class:`callboard.Canary`."""

    share: float = 0.05
    requests: int = 100
    max_error_rate: float = 0.0
    max_slowdown: float | None = None
    shadow: bool = False
    timeout: float = TRIAL_TIMEOUT


class ControlRequest(msgspec.Struct):
    """The body of requests to load and unload, if there is one."""

    parameters: dict[str, Any] = {}


async def load(app: App, request: Request, body: memoryview) -> Body:
    """Load a model; one that is loaded is replaced while its requests run. Or let another version get its requests."""
    model, version, canary = await _controlled(app, request, body, "canary")
    if version is None:
        if canary is not None:
            raise BadRequest("the parameter 'canary' needs 'version', the one that is tried")
        await model.chain.load()
    else:
        try:
            trial = None if canary is None else Canary(**msgspec.structs.asdict(msgspec.convert(canary, CanaryRequest)))
        except ValueError as e:
            raise BadRequest(f"the parameter 'canary': {e}") from e
        await app.swap(model.name, version, canary=trial)
    return Body({})


async def unload(app: App, request: Request, body: memoryview) -> Body:
    """Finish the requests of a model, or of one version, and unload it."""
    model, _, _ = await _controlled(app, request, body)
    await model.chain.unload(app.limits.drain_timeout)
    return Body({})


async def trace_setting(app: App, request: Request, body: memoryview) -> Body:
    """Settings of traces: of a model, or of all."""
    return Body(_tracer(app).settings(_traced(app, request)))


async def update_trace_setting(app: App, request: Request, body: memoryview) -> Body:
    """Change settings of traces, of a model or of all; null is the default."""
    return Body(_tracer(app).update(await decode_json(body, dict[str, Any]), _traced(app, request)))


def _traced(app: App, request: Request) -> str | None:
    return _any_model(app, request).name if "model" in request.path_params else None


def _tracer(app: App) -> Tracer:
    if app.tracer is None:
        raise HttpError("requests are not traced: the app has no trace_file", 403)
    return app.tracer


class RegionRequest(msgspec.Struct):
    """The body of ``/v2/systemsharedmemory/region/<name>/register``."""

    key: str
    byte_size: int
    offset: int = 0


async def region_status(app: App, request: Request, body: memoryview) -> Body:
    """Shared memory that clients have registered: one region, or all."""
    return Body(_regions(app).status(request.path_params.get("region")))


async def register_region(app: App, request: Request, body: memoryview) -> Body:
    """Name a part of shared memory, which tensors can be in then."""
    regions, given = _regions(app), await decode_json(body, RegionRequest)
    regions.register(request.path_params["region"], given.key, given.offset, given.byte_size)
    return Body({})


async def unregister_region(app: App, request: Request, body: memoryview) -> Body:
    """Forget one region of shared memory, or all."""
    _regions(app).unregister(request.path_params.get("region"))
    return Body({})


def _regions(app: App) -> Regions:
    app.check_accepting()
    if app.regions is None:
        raise HttpError("shared memory is not for clients: the app has no shared_memory", 403)
    return app.regions


async def _controlled(app: App, request: Request, body: memoryview, *takes: str) -> tuple[Model, str | None, Any]:
    model = app.find(request.path_params["model"])
    app.check_accepting()
    if not app.model_control:
        raise HttpError("models are neither loaded nor unloaded over HTTP: the app has no model_control", 403)
    given = (await decode_json(body, ControlRequest)).parameters if body else {}
    unknown = next((name for name in given if name not in ("unload_dependents", "version", *takes)), None)
    if unknown is not None:
        raise BadRequest(f"the parameter {unknown!r} is not supported: a model is loaded from where its app has it")
    version = given.get("version")
    if not isinstance(version, str | None):
        raise BadRequest(f"the parameter 'version' is {version!r:.100}, and must be the name of a version")
    return app.find(model.name, version), version, given.get("canary")


def _any_model(app: App, request: Request) -> Model:
    return app.find(request.path_params["model"], request.path_params.get("version"))


def _model(app: App, request: Request) -> TensorModel | EmbeddingModel:
    return _with_tensors(_any_model(app, request))


def _with_tensors(model: Model) -> TensorModel | EmbeddingModel:
    if not isinstance(model, TensorModel | EmbeddingModel):
        raise HttpError(f"model {model.name!r} has no tensors: ask it under {model.url}", 404)
    return model


def _described(tensor: Any) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}


def _configured(tensor: Any) -> dict[str, Any]:
    datatype = "STRING" if tensor.datatype == "BYTES" else tensor.datatype
    return {"name": tensor.name, "data_type": f"TYPE_{datatype}", "dims": tensor.shape}
