"""``Reducer``: the gradients of all replicas added up, bucket by bucket, while the backward pass goes on."""

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from callboard.train.replicas.buckets import Buckets
from callboard.train.replicas.exchange import Exchange

__all__ = ["Reducer"]


class Reducer:
    """Starts to add a bucket up as soon as its gradients are complete: those of the last layers come first.

    Whatever the passes of the replicas are like, all call the same collectives in the same order: the buckets from the
    last one on, and the first one at the end, together with what else there is. So the numbers are those of buckets
    that are added up after the pass, and a model with one bucket needs one collective.

    Args:
        parameters: Those of the buckets.
        exchange: The other replicas, on a stream beside that of the passes.

    Attributes:
        lent: A collective that has failed had the buckets, and may yet write.
    """

    def __init__(self, parameters: Sequence[Any], exchange: Exchange) -> None:
        self.lent = False
        self._exchange = exchange
        self._buckets = Buckets([])
        self._bucket_of: dict[int, int] = {}  # by the identities of the parameters
        self._left = 0  # buckets that are not being added up
        self._missing: list[set[int]] | None = None  # in the pass that is watched: parameters of each bucket
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(_weak(self._arrived))

    def begin(self, buckets: Buckets) -> None:
        """A step begins, with its gradients in these buckets."""
        if buckets is not self._buckets:
            self._bucket_of = {id(one): at for at, views in enumerate(buckets.views) for one, _ in views}
        self._buckets, self._left = buckets, len(buckets.flats)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Around the last backward pass of a step."""
        if self._left > 1:  # a single bucket is added up at the end
            self._missing = [{id(one) for one, _ in views} for views in self._buckets.views]
        try:
            yield
        finally:
            self._missing = None

    def finish(self, loss: Any, averages: Buckets) -> None:
        """Add up what is left, and wait.

        Args:
            loss: One more array to be added up.
            averages: Values that all take from the first replica.

        Raises:
            WorldLost, LibraryError: A collective has failed; the buckets are lent.
        """
        while self._left > 1:
            self._start()
        self.lent = True
        self._buckets.collect(0)
        self._exchange.add_up([self._buckets.flats[0], loss], averages.flats)
        self._exchange.wait()
        self.lent = False

    def _start(self) -> None:
        self.lent = True
        self._left -= 1
        self._buckets.collect(self._left)
        self._exchange.add_up([self._buckets.flats[self._left]], [])

    def _arrived(self, parameter: Any) -> None:
        """The watched pass has added its part to a gradient."""
        missing, one = self._missing, id(parameter)
        if missing is None:
            return
        at = self._bucket_of[one]
        if at >= self._left:
            raise RuntimeError(
                f"a parameter of shape {list(parameter.shape)} got a gradient twice in one backward pass, as with "
                "reentrant checkpoints; use torch.utils.checkpoint with use_reentrant=False"
            )
        missing[at].discard(one)
        while self._left > 1 and not missing[self._left - 1]:
            self._start()


def _weak(method: Callable[[Any], None]) -> Callable[[Any], None]:
    """The method, as long as its object is alive: parameters keep their hooks alive, and the buckets the parameters."""
    known = weakref.WeakMethod(method)

    def call(given: Any) -> None:
        found = known()
        if found is not None:
            found(given)

    return call
