"""``Source``: data in any of the forms that a run takes, as batches of one pass after the other."""

import asyncio
import copy
import itertools
import operator
import sys
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sized
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any

import numpy as np

from callboard.actors.errors import returned
from callboard.train.batches import Batch, as_arrays, is_arrays, part, rows_of
from callboard.train.replicas.randomness import seed_of

__all__ = ["Source", "source_of"]

FORMS = (
    "arrays of all samples, (inputs, targets) for example, a torch Dataset, a DataLoader, an iterable of batches, or a "
    "function that gives one"
)


class Source:
    """Batches that can be read again, pass by pass.

    Args:
        read: See :meth:`batches`; None: a subclass has its own.
        count, once, told: See below.

    Attributes:
        count: Batches in a pass; None: it is not known before its end.
        once: There is one pass, from where the iterator is.
        told: What gets the number of a pass by ``set_epoch``.
    """

    def __init__(
        self,
        read: Callable[[int, int], Iterator[Batch]] | None = None,
        count: int | None = None,
        once: bool = False,
        told: tuple[Any, ...] = (),
    ) -> None:
        self._reader = read
        self.count = count
        self.once = once
        self.told = [one for one in told if hasattr(one, "set_epoch")]

    def batches(self, epoch: int, first: int) -> Iterator[Batch]:
        """The batches of a pass, by its number and the number of the first one."""
        assert self._reader is not None
        return self._reader(epoch, first)

    def begin(self, epoch: int, order: bytes) -> bytes:
        """A pass begins, with its generators in that state; empty: as they are. Their state."""
        for one in self.told:
            one.set_epoch(epoch)
        return b""

    def beside(self, other: "Source") -> "Source":
        """The same data, read while the other source is: what both hold stays as the other one needs it."""
        self.told = [one for one in self.told if not any(one is each for each in other.told)]
        return self

    def state(self) -> bytes:
        """The state of its generators."""
        return b""

    def interrupt(self) -> None:
        """End a read that waits for the event loop, and all later ones."""

    def abort(self) -> bool:
        """End a read that waits for processes; false: there are none."""
        return False

    def release(self, *, failed: bool) -> None:
        """Let go of what reading holds.

        Args:
            failed: Reading raised: also of what a further pass would go on with.
        """


def source_of(
    data: Any, batch_size: int | None, shuffle: bool | None, seed: int, what: str = "data", usual: int | None = None
) -> Source:
    """The batches of data in any form.

    Args:
        data: See :meth:`.DataParallelTrainer.fit`.
        batch_size: Samples of a batch; None where the data gives batches itself.
        shuffle: A new order in each pass; None: yes, where the data has none of its own.
        seed: Decides the order.
        what: Name of the argument, for errors.
        usual: Of an evaluation: samples come in their order, and so many make a batch if nothing else is said.

    Raises:
        TypeError, ValueError: Data of another kind, without a sample, or with settings that it does not take.
    """
    if batch_size is not None and operator.index(batch_size) < 1:
        raise ValueError(f"{what}: batch_size is {batch_size}; it is at least 1")
    kinds: Any = getattr(getattr(sys.modules.get("torch"), "utils", None), "data", None)
    take: Callable[[Any], Batch]
    forms = callable(data) or any(hasattr(data, name) for name in ("__iter__", "__aiter__", "__getitem__"))
    if isinstance(data, str | bytes) or not (forms or is_arrays(data)):
        raise TypeError(f"fit: {what} is a {type(data).__name__}; pass {FORMS}")
    if isinstance(data, list) and data and _is_batch(data[0]):
        raise TypeError(
            f"fit: {what} is a list of {type(data[0]).__name__}s of arrays. If they are batches, pass "
            "`lambda: batches`; if they are samples, pass a Dataset, or arrays of all samples"
        )
    if is_arrays(data):
        arrays = as_arrays(data)
        rows, take = rows_of(arrays), lambda numbers: part(arrays, numbers)
    elif kinds is not None and isinstance(data, kinds.IterableDataset | kinds.DataLoader):
        is_loader = isinstance(data, kinds.DataLoader)
        _refuse(what, data, batch_size if is_loader else None, shuffle)
        return _Loader(data if is_loader else kinds.DataLoader(data, batch_size=batch_size), seed)
    elif hasattr(data, "__getitem__") and isinstance(data, Sized):
        rows, take = len(data), _collating(data)
    else:
        _refuse(what, data, batch_size, shuffle)
        return _Iterable(data)
    size = batch_size or usual
    if size is None:
        raise TypeError(f"fit: batch_size is None, but {what} has samples, not batches; say how many make a batch")
    if not rows:
        raise ValueError(f"fit: the {what} has no samples")
    return Source(_reader(rows, take, size, seed, shuffle is not False and usual is None), -(-rows // size))


def _is_batch(item: Any) -> bool:
    """It holds arrays, not single numbers only."""
    if not isinstance(item, tuple | dict):
        return False
    return any(
        _is_batch(one) or getattr(one, "shape", ()) for one in (item.values() if isinstance(item, dict) else item)
    )


def _refuse(what: str, data: Any, batch_size: int | None, shuffle: bool | None) -> None:
    for name, value in (("batch_size", batch_size), ("shuffle", shuffle)):
        if value is not None:
            raise ValueError(f"fit: {name} is {value}, but {what} is a {type(data).__name__}, which decides it itself")


def _reader(
    rows: int, take: Callable[[Any], Batch], size: int, seed: int, shuffle: bool
) -> Callable[[int, int], Iterator[Batch]]:
    """Batches of samples that have numbers; their order follows from the seed and the number of the pass."""

    def read(epoch: int, first: int) -> Iterator[Batch]:
        order = np.random.default_rng([seed, epoch]).permutation(rows) if shuffle else np.arange(rows)
        for start in range(first * size, rows, size):
            yield take(order[start : start + size])

    return read


def _collating(data: Any) -> Callable[[Any], Batch]:
    """The samples of a map-style data set, put together as a ``DataLoader`` does."""
    from torch.utils.data import default_collate

    def take(rows: Any) -> Batch:
        numbers = rows.tolist()
        many = getattr(data, "__getitems__", None)
        return default_collate([data[number] for number in numbers] if many is None else many(numbers))

    return take


class _Loader(Source):
    """A ``DataLoader``. What comes before the first batch of a pass is read and dropped.

    Its generators, which decide order and seeds of its workers, are set back at the beginning of a pass that goes on.
    Where it has none, it gets one.

    Args:
        loader: The loader.
        seed: Of that generator.
        lent: Its workers may stay for a further run.
    """

    def __init__(self, loader: Any, seed: int, *, lent: bool = True) -> None:
        import torch

        is_iterable = isinstance(loader.dataset, torch.utils.data.IterableDataset)
        samplers = [loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None)]
        super().__init__(count=None if is_iterable else len(loader), told=(*samplers, loader.dataset))
        self._loader = loader
        self._seed = seed
        self._persistent = loader.persistent_workers and loader.num_workers > 0
        self._lent = lent and self._persistent
        self._iterator: Any = None
        fresh = torch.Generator().manual_seed(seed_of(seed, "data"))
        generators: dict[int, Any] = {}
        for one in (loader, *samplers):
            if getattr(one, "generator", 0) is None:
                one.generator = fresh
            generator = getattr(one, "generator", None)
            if isinstance(generator, torch.Generator):
                generators[id(generator)] = generator
        self._generators = list(generators.values())

    def begin(self, epoch: int, order: bytes) -> bytes:
        super().begin(epoch, order)
        if order:
            self._set(order)
        return self.state()

    def beside(self, other: Source) -> Source:
        if not isinstance(other, _Loader) or not any(
            one is each for one in self._generators for each in other._generators
        ):
            return super().beside(other)
        return _Loader(_separate(self._loader), self._seed, lent=False).beside(other)

    def abort(self) -> bool:
        workers = getattr(self._iterator or getattr(self._loader, "_iterator", None), "_workers", ())
        for worker in workers:
            worker.terminate()
        return bool(workers)

    def release(self, *, failed: bool) -> None:
        iterator, self._iterator = self._iterator, None
        if self._lent and not failed:
            return
        getattr(iterator, "_shutdown_workers", lambda: None)()
        if self._persistent and self._loader._iterator is iterator:
            self._loader._iterator = None  # it makes another one

    def batches(self, epoch: int, first: int) -> Iterator[Batch]:
        self._iterator = self._iterating()
        return _owned(self._iterator, first)

    def _iterating(self) -> Iterator[Batch]:
        """An iterator, for which the generator gives one number: the seed of workers.

        Torch draws it where it starts workers, so that with persistent ones a pass would depend on whether there was
        one before.
        """
        import torch

        loader = self._loader
        if not self._persistent:
            return iter(loader)
        own = loader.generator
        loader.generator = torch.Generator(own.device).set_state(own.get_state())
        try:
            torch.empty((), dtype=torch.int64).random_(generator=own)
            return iter(loader)
        finally:
            loader.generator = own

    def state(self) -> bytes:
        return b"".join(one.get_state().numpy().tobytes() for one in self._generators)

    def _set(self, order: bytes) -> None:
        import torch

        if len(order) != len(self.state()):
            raise ValueError("training goes on in the middle of a run with another loader: its generators differ")
        for one in self._generators:
            size = one.get_state().numel()
            one.set_state(torch.frombuffer(bytearray(order[:size]), dtype=torch.uint8))
            order = order[size:]


def _separate(loader: Any) -> Any:
    """A loader of the same data, with samplers, generators and workers of its own."""
    made, sampler, batches = copy.copy(loader), copy.copy(loader.sampler), copy.copy(loader.batch_sampler)
    one: Any
    inner = getattr(batches, "sampler", None)
    if inner is not None:
        batches.sampler = sampler if inner is loader.sampler else copy.copy(inner)
        inner = batches.sampler
    for one in (made, sampler, batches, inner):
        if getattr(one, "generator", None) is not None:
            one.generator = None
    vars(made).update(sampler=sampler, batch_sampler=batches, _iterator=None)
    return made


class _Iterable(Source):
    """Batches of an iterable, or of one that a function gives for each pass; also of asynchronous ones.

    What comes before the first batch of a pass is read and dropped. An iterator goes on from where it is, for one pass.
    """

    def __init__(self, data: Any) -> None:
        is_iterable = hasattr(data, "__iter__") or hasattr(data, "__aiter__")
        once = is_iterable and (hasattr(data, "__next__") or hasattr(data, "__anext__"))
        super().__init__(once=once, told=(data,))
        self._make = (lambda: data) if is_iterable else data
        self._bridge = _Bridge()

    def interrupt(self) -> None:
        self._bridge.close()

    def batches(self, epoch: int, first: int) -> Iterator[Batch]:
        made = self._make()
        if hasattr(made, "__aiter__"):
            made = self._bridge.over(made)
        elif not hasattr(made, "__iter__"):
            raise returned("data", made, "an iterable of batches")
        return _owned(made, first)


def _owned(batches: Iterable[Batch], first: int) -> Iterator[Batch]:
    """The batches from ``first`` on. Several are held at once, and some data fill one array again and again."""
    return map(partial(as_arrays, copy=np.copyto), itertools.islice(batches, first, None))


class _Bridge:
    """Asynchronous iterators for a thread, which waits for the loop that runs where this is made."""

    def __init__(self) -> None:
        self._closed = False
        self._waiting: Future[Any] | None = None
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:  # a run whose steps are counted only
            self._loop = None

    def over(self, items: AsyncIterable[Any]) -> Iterator[Any]:
        """The items, each computed by the loop."""
        assert self._loop is not None
        iterator, end = aiter(items), object()

        async def following() -> Any:
            return await anext(iterator, end)

        while not self._closed:
            self._waiting = asyncio.run_coroutine_threadsafe(following(), self._loop)
            if self._closed:
                self._waiting.cancel()
            try:
                item = self._waiting.result()
            except CancelledError:
                if self._closed:
                    return
                raise RuntimeError("the iterator of batches was cancelled") from None
            if item is end:
                return
            yield item

    def close(self) -> None:
        """End the item that is being waited for."""
        self._closed = True
        if self._waiting is not None:
            self._waiting.cancel()
