"""``AsyncParameterServer``: weights that workers pull, and push gradients to, each at its own speed."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, overload

import msgspec
import numpy as np

from callboard.actors.handles import Handle
from callboard.device.client.handle import Device
from callboard.train.errors import StaleGradient, TrainerClosed
from callboard.train.kinds import Optimizer
from callboard.train.opening import Opened
from callboard.train.parameterserver import saving
from callboard.train.parameterserver.clocks import Clocks
from callboard.train.parameterserver.consistency import Consistency, Rule
from callboard.train.parameterserver.gradients import as_array, checked, checked_rows
from callboard.train.parameterserver.receipts import Receipt, Receipts
from callboard.train.parameterserver.sharded import Sharded
from callboard.train.parameterserver.stats import ServerStats, WorkerStats
from callboard.train.parameterserver.window import Push, Window
from callboard.train.running.plateau import ReduceLROnPlateau
from callboard.train.running.schedule import Schedule

__all__ = ["AsyncParameterServer", "Weights"]

_log = logging.getLogger(__name__)


class Weights(msgspec.Struct, frozen=True):
    """What a worker pulled.

    Attributes:
        version: Number of updates that they have; to be passed to :meth:`.AsyncParameterServer.push`.
        arrays: By name, read only: all pulls of one version share them, and no update changes them.
    """

    version: int
    arrays: Mapping[str, Any]


class AsyncParameterServer(Handle):
    """Weights and their optimizer beside devices, for workers that pull and push at their own speed.

    A lost device costs time, and no update: each shard of the weights has a snapshot in host memory and the updates
    since then, at most ``snapshot_every``, which are made again in the device's next context (or on another device, if
    it has stopped for good) with the same numbers. When the application ends, what :meth:`save` wrote is left.

    ::

        async with cb.AsyncParameterServer(
            {"w": np.zeros(1000, "f4")}, optimizer=cb.OptimizerKind.AdamW(), consistency=cb.Consistency.Ssp(slack=3)
        ) as server:
            weights = await server.pull("worker 1")
            await server.push("worker 1", 0, {"w": gradient(weights.arrays["w"])}, weights.version)

    The optimizer is one of ``torch.optim``. Weights are cut between rows into ranges of equal size, one for each
    device, so with several devices it must treat every item alike, as all but a few do.

    Args:
        weights: The first weights: arrays or tensors of floating-point numbers, by name.
        optimizer: One of :class:`.OptimizerKind`, or a function from parameters to a torch optimizer.
        schedule: Of the step size, by the number of updates; see :class:`.Job`, but no :class:`.ReduceLROnPlateau`.
        consistency: One of :class:`.Consistency`: which workers wait for which.
        max_staleness: A push for weights that have had more updates since is refused with :class:`.StaleGradient`;
            None: any is taken.
        devices: As for :class:`.DataParallelTrainer`; a shard beside each.
        workers: Workers that are waited for from the beginning. Others are known from their first call.
        window: Pushes whose mean makes one update; under ``Bsp`` always one of each live worker.
        lease: Seconds without a call after which a worker is lost, and the others wait for it no more.
        snapshot_every: Updates between two snapshots; each copies weights and optimizer state to the host's memory,
            and the gradients of the updates since then are kept there.

    Raises:
        TypeError, ValueError: A setting that cannot be.
    """

    def __init__(
        self,
        weights: Mapping[str, Any],
        *,
        optimizer: Optimizer,
        schedule: Callable[[Any], Any] | None = None,
        consistency: Rule = Consistency.Ssp(),  # noqa: B008  # frozen
        max_staleness: int | None = None,
        devices: Sequence[Device | str] = ("auto",),
        workers: Sequence[Hashable] = (),
        window: int = 1,
        lease: float = 60.0,
        snapshot_every: int = 16,
    ) -> None:
        self._first = _first(weights)
        if isinstance(optimizer, type) or not (
            type(optimizer).__qualname__.startswith("OptimizerKind.") or callable(optimizer)
        ):
            raise TypeError(f"{_NAME}: optimizer is {optimizer!r:.80}; pass one of cb.OptimizerKind, or a function")
        if not isinstance(consistency, Rule):
            raise TypeError(f"{_NAME}: consistency is {consistency!r:.80}; pass one of cb.Consistency, such as Ssp()")
        if max_staleness is not None and max_staleness < 0:
            raise ValueError(f"{_NAME}: max_staleness is {max_staleness}; it is a number of updates, or None")
        if isinstance(workers, str):
            raise TypeError(f"{_NAME}: workers is {workers!r:.80}; pass a list of names")
        for name, least in (("window", window), ("snapshot_every", snapshot_every)):
            if least < 1:
                raise ValueError(f"{_NAME}: {name} is {least}; it is at least 1")
        if not lease > 0:
            raise ValueError(f"{_NAME}: lease is {lease}; it is a time in seconds above 0")
        if isinstance(schedule, ReduceLROnPlateau):
            raise TypeError(
                f"{_NAME}: schedule is {schedule!r:.80}, which follows the evaluations of fit; pass a function of the "
                "number of updates, or one that makes a scheduler of torch"
            )
        self._optimizer = optimizer
        self._schedule = Schedule(schedule, optimizer, _NAME)
        self._rule = consistency
        self._max_staleness = max_staleness
        self._workers = tuple(workers)
        self._every = snapshot_every
        self._opened = Opened(_NAME, devices)
        self._clocks = Clocks(consistency, lease)
        self._window = Window(None if isinstance(consistency, Consistency.Bsp) else window)
        self._receipts = Receipts()
        self._shards: Sharded | None = None
        self._latest: Weights | None = None
        self._lock = asyncio.Lock()
        self._event = asyncio.Event()
        self._tasks: set[asyncio.Task[Receipt]] = set()
        self._version = 0
        self._count: Counter[str] = Counter()
        self._staleness: Counter[int] = Counter()
        self._waited: defaultdict[Hashable, float] = defaultdict(float)

    async def __aenter__(self) -> Self:
        try:
            devices = await self._opened.open()
            self._shards = Sharded(self._first, self._optimizer, devices, self._every)
            await self._shards.start()
            await self._follow(self._shards)
            for worker in self._workers:
                self._clocks.hear(worker, _now())
        except BaseException:  # also a cancelled start gives its devices back
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the shards; close the devices that the server has opened. Calls that wait fail."""
        shards, self._shards = self._shards, None
        self._changed()
        if shards is not None:
            await shards.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._opened.close()

    @property
    def version(self) -> int:
        """Updates of the weights."""
        return self._version

    # -- workers -------------------------------------------------------------------------------------------------------

    @overload
    async def pull(
        self, worker: Hashable, *, newer_than: None = None, rows: Mapping[str, Any] | None = None
    ) -> Weights: ...
    @overload
    async def pull(
        self, worker: Hashable, *, newer_than: int, rows: Mapping[str, Any] | None = None
    ) -> Weights | None: ...
    async def pull(
        self, worker: Hashable, *, newer_than: int | None = None, rows: Mapping[str, Any] | None = None
    ) -> Weights | None:
        """The weights, as soon as ``consistency`` lets the worker go on.

        Args:
            worker: Its name.
            newer_than: The version that it has; None: it has none.
            rows: Numbers of rows by the names of weights of which it needs only these, in this order; names that are
                not here come whole.

        Returns:
            None if there is no newer version.

        Raises:
            ShapeError: A row that the weights do not have.
        """
        shards = self._open()
        chosen = {name: self._rows(name, numbers) for name, numbers in (rows or {}).items()}
        with self._heard(worker):
            await self._room(worker)
            if newer_than is not None and self._version <= newer_than:
                return None
            self._count["pulls"] += 1
            async with self._lock:
                if self._latest is not None and self._latest.version == self._version:
                    whole = self._latest.arrays
                    if not chosen:
                        return self._latest
                    return self._pulled(
                        {name: one[chosen[name]] if name in chosen else one for name, one in whole.items()}
                    )
                found = self._pulled(await shards.weights(self._version, chosen))
                if not chosen:
                    self._latest = found
                return found

    async def push(self, worker: Hashable, seq: int, gradients: Any, version: int) -> Receipt:
        """Have the optimizer take a worker's gradients. Ends when the worker may compute the next ones.

        A push that is repeated with the same ``seq``, because its answer was lost or the call was cancelled, is counted
        once and gets the answer of the first.

        Args:
            worker: Its name.
            seq: Number of the push; the worker gives each one a higher number.
            gradients: By name: arrays or tensors of the weights' shapes and dtypes, :class:`.SparseRows`, or what
                :class:`.GradientCompressor` gives. A weight without one stays, as in torch. They are copied.
            version: Of the weights that they are for.

        Raises:
            TypeError, ShapeError, NotFinite: A gradient that cannot be; the text names it. Nothing is counted.
            StaleGradient: See ``max_staleness``. Nothing is counted: pull and compute again.
            Exception: What the optimizer raised; the weights are as before.
        """
        self._open()
        with self._heard(worker):
            try:
                push = self._receipts.find(worker, seq)
                if push is None:
                    push = self._start(worker, seq, self._checked(worker, gradients, version))
                else:
                    self._count["repeated"] += 1
                receipt = await asyncio.shield(push)  # a cancelled call leaves the push to be counted, once
            except Exception:  # whatever it is, the push is not counted
                self._count["refused"] += 1
                raise
            await self._room(worker)
            return receipt

    def beat(self, worker: Hashable) -> None:
        """The worker lives, and needs more than ``lease`` for its gradients: call it now and then."""
        self._open()
        self._clocks.hear(worker, _now())

    async def leave(self, worker: Hashable) -> None:
        """The worker is done; the others wait for it no more."""
        self._open()
        self._clocks.drop(worker)
        self._changed()
        await self._apply()

    def stats(self) -> ServerStats:
        """What was done up to now."""
        self._clocks.expire(_now())
        live, clock = set(self._clocks.live), self._clocks.clock
        fastest = max((clock[worker] for worker in live), default=0)
        return ServerStats(
            version=self._version,
            pushes=self._count["pushes"],
            repeated=self._count["repeated"],
            refused=self._count["refused"],
            pulls=self._count["pulls"],
            staleness=dict(sorted(self._staleness.items())),
            losses=0 if self._shards is None else self._shards.losses,
            workers={
                worker: WorkerStats(
                    clock=own, behind=max(0, fastest - own), live=worker in live, waited=self._waited.get(worker, 0.0)
                )
                for worker, own in clock.items()
            },
        )

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    async def save(self, folder: str | Path, *, keep: int | None = None) -> Path:
        """Write a checkpoint, complete or not at all: weights, optimizer, and which pushes were counted.

        Pushes of a window that is not full make an update first.

        Args:
            folder, keep: As for :meth:`.DataParallelTrainer.save`.

        Raises:
            OSError: It cannot be written; older ones are as they were.
        """
        shards = self._open()
        if keep is not None and keep < 1:
            raise ValueError(f"save: keep is {keep}; it is a number of checkpoints, at least 1, or None")
        await self._apply(flush=self._window.size is not None)
        async with self._lock:
            states = await shards.states(self._version)
            saved = saving.Saved(self._version, states, self._receipts.saved())
        return await asyncio.to_thread(saving.write, Path(folder), shards.layout, saved, keep)

    async def resume(self, folder: str | Path) -> int:
        """Go on from a checkpoint, which was written with the same weights and number of devices.

        Args:
            folder: A checkpoint's own folder, or one with several, of which the latest counts.

        Returns:
            The version.

        Raises:
            FileNotFoundError: There is no checkpoint.
            ShapeError: It is of other weights, or of another number of shards.
        """
        shards = self._open()
        saved = await asyncio.to_thread(saving.read, Path(folder), shards.layout)
        async with self._lock:
            shards.take(saved.states)
            self._version, self._latest = saved.version, None
            self._receipts.restore(saved.pushes, saved.version)
            await self._follow(shards)
        return saved.version

    # -- pushes --------------------------------------------------------------------------------------------------------

    def _start(self, worker: Hashable, seq: int, push: Push) -> asyncio.Task[Receipt]:
        task = asyncio.create_task(self._counted(worker, push))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._receipts.add(worker, seq, task)
        return task

    async def _counted(self, worker: Hashable, push: Push) -> Receipt:
        await self._room(worker)
        self._check_staleness(worker, push.version)
        self._clocks.count(worker)
        self._window.add(push)
        self._changed()
        await self._apply()
        if self._window.size is None:
            await self._until(lambda: push.is_done)
        if not push.is_done:
            self._open()
        if push.error is not None:
            raise push.error
        self._count["pushes"] += 1
        return Receipt(push.made or self._version, push.staleness)

    async def _apply(self, *, flush: bool = False) -> None:
        """Make the updates that are due; each push learns what became of it."""
        async with self._lock:
            while self._shards is not None and (flush or self._window.is_due(self._clocks)) and self._window.pushes:
                taken = self._window.take()
                for push in taken:
                    push.staleness = self._version - push.version
                factor = 1.0
                if isinstance(self._rule, Consistency.Asp) and self._rule.scaled:
                    factor = sum(1 / (1 + push.staleness) for push in taken) / len(taken)
                try:
                    rates = self._schedule.rates(self._version, factor)
                    await self._shards.update(self._version + 1, [push.gradients for push in taken], rates)
                except Exception as error:  # of the schedule, the optimizer or a device: the answer of these pushes
                    _log.warning("an update with %d pushes failed: %s", len(taken), error)
                    for push in taken:
                        push.error = error
                else:
                    self._version += 1
                    self._staleness.update(push.staleness for push in taken)
                    for push in taken:
                        push.made = self._version
                self._changed()

    async def _follow(self, shards: Sharded) -> None:
        """Have a scheduler of torch go on from this version."""
        if self._schedule.follows:
            await asyncio.to_thread(self._schedule.begin, await shards.groups(self._version), self._version)

    def _checked(self, worker: Hashable, gradients: Any, version: Any) -> Push:
        if not isinstance(version, int) or not 0 <= version <= self._version:
            raise ValueError(
                f"push: version is {version!r:.40}; pass that of the weights that were pulled, 0 to {self._version}"
            )
        self._check_staleness(worker, version)
        return Push(checked(gradients, self._first), version)

    def _check_staleness(self, worker: Hashable, version: int) -> None:
        staleness = self._version - version
        if self._max_staleness is not None and staleness > self._max_staleness:
            raise StaleGradient(
                f"push of worker {worker!r}: its weights have had {staleness} updates since, max_staleness is "
                f"{self._max_staleness}; pull and compute the gradient again"
            )

    def _rows(self, name: str, numbers: Any) -> Any:
        if name not in self._first:
            raise KeyError(f"rows[{name!r}]: there is no such weight")
        return checked_rows(f"rows[{name!r}]", numbers, self._first[name])

    def _pulled(self, arrays: dict[str, Any]) -> Weights:
        for array in arrays.values():
            array.flags.writeable = False
        return Weights(self._version, MappingProxyType(arrays))

    # -- waiting -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _heard(self, worker: Hashable) -> Iterator[None]:
        self._clocks.enter(worker, _now())
        try:
            yield
        finally:
            self._clocks.leave(worker, _now())
            self._changed()  # those who wait have to look at its lease again

    async def _room(self, worker: Hashable) -> None:
        if self._clocks.has_room(worker):
            return
        began = _now()
        await self._until(lambda: self._clocks.has_room(worker))
        self._waited[worker] += _now() - began

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait; meanwhile, workers whose leases end are dropped."""
        while not condition():
            self._open()
            lost = self._clocks.expire(_now())
            if lost:
                _log.warning("lost workers: %s were not heard of for their lease", ", ".join(map(repr, lost)))
                self._changed()
                await self._apply()
                continue
            event = self._event
            try:
                async with asyncio.timeout(self._clocks.next_expiry(_now())):
                    await event.wait()
            except TimeoutError:
                continue

    def _changed(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    def _open(self) -> Sharded:
        if self._shards is None:
            raise TrainerClosed("the parameter server is not open; use it inside `async with`")
        return self._shards


_NAME = AsyncParameterServer.__name__


def _now() -> float:
    return asyncio.get_running_loop().time()


def _first(weights: Any) -> dict[str, Any]:
    if not isinstance(weights, Mapping) or not weights:
        raise TypeError(f"{_NAME}: weights is {weights!r:.60}; pass a dict of arrays by name")
    arrays = {name: np.array(as_array(value), order="C") for name, value in weights.items()}
    for name, array in arrays.items():
        if array.dtype.name not in ("float16", "float32", "float64"):
            raise TypeError(f"{_NAME}: weights[{name!r}] is of dtype {array.dtype}; it must be of f16, f32 or f64")
        if not array.size:
            raise ValueError(f"{_NAME}: weights[{name!r}] has no items")
    return arrays
