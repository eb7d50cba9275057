"""An app as a TOML file: which models, on which device, with which limits."""

import functools
import importlib
import os
import re
import sys
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

import callboard as cb
from callboard.core.errors import AccelError, BackendUnavailable
from callboard.core.registry import resolve
from callboard.kernel.engine.inputs.budget import BUDGET
from callboard.patterns.contract.checks import check_whole
from callboard.patterns.fairshare.settings import Tenant
from callboard.serve.app import App, EdgeLimits
from callboard.serve.encoding.regions import Regions
from callboard.serve.errors import BadAppFile
from callboard.serve.http.rights import RIGHTS, Right
from callboard.serve.http.tokens import checked_key, read_token
from callboard.serve.tensors import Tensor

__all__ = ["AppFile", "app_of"]

HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header (RFC 9110, 5.1)."""
CUDA = re.compile(r"cuda(:\d+)?")


class _Tensor(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    datatype: str
    shape: list[int]


class _Tenant(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of :class:`Tenant`."""

    weight: float = Tenant.weight
    max_queue: int = Tenant.max_queue
    max_queue_cost: float | None = None
    max_in_flight: int | None = None
    rate: float | None = None
    burst: float | None = None
    hard: bool = False


class _Model(msgspec.Struct, forbid_unknown_fields=True):
    onnx: str | None = None
    call: str | dict[str, str] | None = None
    embeddings: str | dict[str, str] | None = None
    inputs: list[_Tensor] = []
    outputs: list[_Tensor] = []
    vocabulary: int | None = None
    version: str | None = None
    concurrency: int = 1
    max_batch: int = 1
    max_queue: int = 1024
    threads: int = 0
    engine: Literal["onnxruntime", "callboard"] | None = None
    budget: float | None = None
    run_limit: float | None = None
    tenants: dict[str, float | _Tenant] | None = None
    replicas: int = 1
    devices: list[str] = []

    def shares(self) -> dict[str, Tenant | float] | None:
        """The tenants as ``App.add_model`` takes them."""
        if self.tenants is None:
            return None
        return {
            name: Tenant(**msgspec.structs.asdict(each)) if isinstance(each, _Tenant) else each
            for name, each in self.tenants.items()
        }

    def check(self) -> None:
        """Raise unless its numbers, and the settings of replicas, can be used."""
        check_whole(1, concurrency=self.concurrency, max_batch=self.max_batch, max_queue=self.max_queue)
        check_whole(0, threads=self.threads)
        for place in self.devices:
            _check_device("devices", place)
        if self.onnx is None and self.threads:
            raise ValueError("threads is for onnx only: for a function there is concurrency")
        if self.onnx is None and self.engine is not None:
            raise ValueError("engine is for onnx only")
        if self.onnx is None and self.budget is not None:
            raise ValueError("budget is for onnx only: a function has run_limit")
        if self.onnx is not None and self.run_limit is not None:
            raise ValueError("run_limit is for functions only: onnx has budget")
        if self.onnx is not None and self.threads and self.engine == "callboard":
            raise ValueError('threads is for ONNX Runtime: leave it out with engine = "callboard"')
        if self.onnx is None and (self.devices or self.replicas != 1):
            raise ValueError("replicas and devices are for onnx only: for a function there is concurrency")
        if self.replicas < 1:
            raise ValueError(f"replicas must be at least 1, but is {self.replicas}")
        if self.devices and self.replicas not in (1, len(self.devices)):
            raise ValueError(f"replicas is {self.replicas}, but devices names {len(self.devices)}: give one of them")


class _Key(msgspec.Struct, forbid_unknown_fields=True):
    rights: list[Right]
    env: str | None = None
    file: str | None = None


class AppFile(msgspec.Struct, forbid_unknown_fields=True):
    """The tables and keys of a file.

    Attributes:
        name: Name of the app.
        device: Device for ONNX files.
        token_env: The environment variable with the bearer token that clients must send; it has all rights.
        keys: Who may do what, instead of a token: ``rights`` of the clients that send this key, which is in the
            environment variable ``env`` or in ``file``, a path relative to this file.
        tenant_header: The header that names the tenant of a request.
        model_control, shared_memory, dashboard: See :class:`App`.
        limits: Fields of :class:`EdgeLimits`.
        models: Models by name: ``onnx``, a path relative to the file; or ``call`` or ``embeddings``, a function as
            ``"module:name"``, or several by version, which get lists of items where ``max_batch`` is above 1. The other
            keys are arguments of ``App.add_onnx``, ``add_model`` and ``add_embeddings``; a tenant is a weight, or a
            table with the fields of :class:`Tenant`. An ONNX file may have a replica on each of ``devices``, or
            ``replicas`` of them on ``device``, each in a process of its own.
    """

    name: str = "callboard"
    device: str = "auto"
    token_env: str | None = None
    keys: dict[str, _Key] = {}
    tenant_header: str | None = None
    model_control: bool = False
    shared_memory: str | None = None
    dashboard: bool = False
    limits: dict[str, float] = {}
    models: dict[str, _Model] = {}


def app_of(path: Path, environ: Mapping[str, str] = os.environ) -> App:
    """The app that a file describes; it opens the device when it starts, if one of the models needs it.

    Modules are also searched in the folder of the file. Its lifespan raises :class:`BadAppFile` for an ONNX file that
    cannot be loaded.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not TOML, or has a key, a value or a function that does not fit; names it.
    """
    try:
        file = _converted(tomllib.loads(path.read_text("utf-8")))
        limits = _limits(file)
        _check_device("device", file.device)
        if file.tenant_header is not None and not HEADER.fullmatch(file.tenant_header):
            raise ValueError(f"tenant_header is {file.tenant_header!r}, which is no name of a header")
        if file.shared_memory is not None:
            Regions(file.shared_memory)  # raises unless it is the beginning of a key
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError, TypeError, ValueError) as e:
        raise ValueError(f"{path}: {e}") from e
    token = None
    if file.token_env is not None and not (token := environ.get(file.token_env, "")):
        raise ValueError(f"{path}: the variable {file.token_env}, which token_env names, is not set")
    header = file.tenant_header
    try:
        app = App(
            file.name,
            lifespan=functools.partial(_lifespan, file=file, path=path, folder=path.resolve().parent),
            token=token,
            rights=_rights(file.keys, path.resolve().parent, environ) or None,
            tenant=None if header is None else lambda headers: headers.get(header),
            model_control=file.model_control,
            shared_memory=file.shared_memory,
            dashboard=file.dashboard,
            limits=limits,
        )
    except ValueError as e:
        raise ValueError(f"{path}: {e}") from e
    sys.path.insert(0, str(path.resolve().parent))
    for name, model in file.models.items():
        if not name.isprintable():
            raise ValueError(f"{path}: models: the name {name!r} has a character that cannot be printed")
        try:
            _add_function(app, name, model, path.resolve().parent)
        except (ValueError, TypeError) as e:
            raise ValueError(f"{path}: models.{name}: {e}") from e
    return app


def _converted(found: dict[str, Any]) -> AppFile:
    """A file's tables; errors name the table, where msgspec writes ``[...]`` for any."""
    try:
        return msgspec.convert(found, AppFile)
    except msgspec.ValidationError as e:
        what, _, path = str(e).rpartition(" - at `$")
        *steps, last = path.rstrip("`").split("[...]")
        if not what or not steps:
            raise
        place, table = "", found
        for step in steps:
            for key in step.strip(".").split("."):
                table = table[key]
            name = _first_wrong(found, table)
            place, table = f"{place}{step}.{name}", table[name]
        raise ValueError(f"{what} - at `{place.removeprefix('.')}{last}`") from e


def _first_wrong(found: dict[str, Any], table: dict[str, Any]) -> str:
    """The first key of a table that cannot be used; the table is left with this key alone."""
    given = dict(table)
    for name, value in given.items():
        table.clear()
        table[name] = value
        try:
            msgspec.convert(found, AppFile)
        except msgspec.ValidationError:
            return name
    raise AssertionError(given)


def _rights(keys: Mapping[str, _Key], folder: Path, environ: Mapping[str, str]) -> dict[str, list[Right]]:
    """Rights by key. Names of keys are in errors; keys are not."""
    found: dict[str, list[Right]] = {}
    names: dict[str, str] = {}
    for name, key in keys.items():
        if (key.env is None) == (key.file is None):
            raise ValueError(f"keys.{name}: give one of env and file, where the key is")
        if key.file is not None:
            try:
                text = read_token(folder / key.file)
            except (OSError, ValueError) as e:
                raise ValueError(f"keys.{name}: file: {e}") from e
        elif not (text := environ.get(key.env or "", "")):
            raise ValueError(f"keys.{name}: the variable {key.env} is not set")
        if not key.rights:
            raise ValueError(f"keys.{name}: rights is empty; give it one of {', '.join(sorted(RIGHTS))}")
        if text in found:
            raise ValueError(f"keys.{name}: the key is that of keys.{names[text]}, too")
        names[checked_key(f"keys.{name}", text)] = name
        found[text] = key.rights
    return found


def _limits(file: AppFile) -> EdgeLimits:
    options: dict[str, Any] = dict(file.limits)
    for key in options.keys() & {"max_body", "max_bodies"}:
        if not options[key].is_integer():
            raise ValueError(f"limits.{key} must be a whole number of bytes, but is {options[key]}")
        options[key] = int(options[key])
    return EdgeLimits(**options)


def _check_device(key: str, name: str) -> None:
    """Raise for a device that no machine has, or not this one; one of CUDA may be absent while no model needs it."""
    if not CUDA.fullmatch(name):
        try:
            resolve(name)
        except BackendUnavailable as e:
            raise ValueError(f"{key}: {e}") from e


def _add_function(app: App, name: str, model: _Model, folder: Path) -> None:
    """Add a model, unless it is an ONNX file, which needs a device."""
    kinds = [kind for kind in ("onnx", "call", "embeddings") if getattr(model, kind) is not None]
    if len(kinds) != 1:
        raise ValueError(f"give one of onnx, call and embeddings, not {len(kinds)} of them")
    tensors: dict[str, Any] = {
        side: [Tensor(each.name, each.datatype, each.shape) for each in getattr(model, side)]
        for side in ("inputs", "outputs")
    }
    model.check()
    if kinds != ["call"] and any(tensors.values()):
        raise ValueError(f"inputs and outputs are for call only: {kinds[0]} declares its own")
    if model.vocabulary is not None and kinds != ["embeddings"]:
        raise ValueError("vocabulary is for embeddings only: clients may send them lists of tokens then")
    if model.onnx is not None:
        if not (folder / model.onnx).is_file():
            raise ValueError(f"there is no file {folder / model.onnx}, which onnx names")
        model.shares()  # raises unless they can be used
        return
    given = model.call or model.embeddings or ""
    target: Any = _target(name, model, given) if isinstance(given, str) else None
    if not isinstance(given, str):
        target = {version: _target(name, model, where) for version, where in given.items()}
    options: dict[str, Any] = {
        "version": model.version,
        "concurrency": model.concurrency,
        "max_queue": model.max_queue,
        "tenants": model.shares(),
        "run_limit": model.run_limit,
    }
    if model.call is not None:
        app.add_model(name, target, **tensors, **options)
    else:
        app.add_embeddings(name, target, vocabulary=model.vocabulary, **options)


def _target(name: str, model: _Model, where: str) -> Any:
    """The function that this names, or a server that calls it with batches."""
    function = _function(where)
    if model.max_batch <= 1:
        return function
    return cb.DynamicBatchingServer(
        function, max_batch=model.max_batch, max_queue=max(model.max_queue, model.max_batch), name=name
    )


def _function(where: str) -> Any:
    module, _, name = where.partition(":")
    if not module or not name:
        raise ValueError(f"{where!r} does not name a function; give MODULE:NAME")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as e:
        if e.name != module:
            raise
        raise ValueError(f"there is no module {module!r} here") from e
    if found is None:
        raise ValueError(f"module {module!r} has no {name!r}")
    return found


@asynccontextmanager
async def _lifespan(app: App, *, file: AppFile, path: Path, folder: Path) -> AsyncIterator[None]:
    files = {name: model for name, model in file.models.items() if model.onnx is not None}
    if not files:
        yield
        return
    async with AsyncExitStack() as stack:
        shared: list[cb.Device] = []
        for name, model in files.items():
            places = model.devices or [file.device] * model.replicas
            if places != [file.device] or not shared:
                devices = [await stack.enter_async_context(cb.device(each)) for each in places]
                shared = shared or (devices if places == [file.device] else [])
            else:
                devices = shared
            try:
                await app.add_onnx(
                    name,
                    folder / (model.onnx or ""),
                    devices if len(devices) > 1 else devices[0],
                    version=model.version or "1",
                    max_batch=model.max_batch,
                    max_queue=model.max_queue,
                    threads=model.threads,
                    engine=model.engine,
                    budget=BUDGET if model.budget is None else model.budget,
                    tenants=model.shares(),
                )
            except (AccelError, OSError, ValueError) as e:
                raise BadAppFile(f"{path}: models.{name}: {e}") from e
        yield
