"""``Flow``: what is cut at the moment of a forward pass, and the collectives at the borders, with their gradients."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from callboard.train.batches import shares
from callboard.train.replicas.exchange import Exchange
from callboard.train.replicas.randomness import seed_of, seeded
from callboard.train.tensor.cuts import Cut
from callboard.train.tensor.plan import open_columns

__all__ = ["Flow"]

SEQUENCE = 1
"""The axis of the sequence."""


@functools.cache
def _crossing() -> Any:
    """The autograd function that is one function forward, and another one backward."""
    import torch

    class Crossing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, there: Callable[[Any], Any], back: Callable[[Any], Any]) -> Any:
            ctx.back = back
            return there(x)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return ctx.back(gradients[0]), None, None

    return Crossing


class Flow:
    """The state of one shard's forward pass.

    Between a ``column`` and its ``row``, each shard has other features; after ``scatter``, other tokens. Random numbers
    are the same on all shards where tensors are whole, and differ where they are cut: else dropout would cut different
    elements of what must be equal.

    Args:
        exchange: The other shards.

    Attributes:
        features: Name and whole width of the module whose output is cut by features; None: nothing is.
        classes: How the classes are cut, if the model's output is.
        vocabulary: Name of the module that gives them.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.features: tuple[str, int] | None = None
        self.classes: Cut | None = None
        self.vocabulary = ""
        self._length: int | None = None  # of the whole sequence, once it is cut
        self._tokens_open = ""  # the module whose output is cut by tokens
        self._gathered = False  # the columns that are open had a cut sequence
        self._opened: Any = None
        self._whole_random: Any = None

    def begin(self) -> None:
        """A forward pass begins."""
        self._whole_random = None
        self.features = self._length = self._opened = None
        self._gathered, self._tokens_open = False, ""

    def check_end(self) -> None:
        """The model has returned its outputs.

        Raises:
            ValueError: They are cut.
        """
        if self.features is not None:
            raise ValueError(open_columns(self.features[0]))
        if self._tokens_open:
            raise ValueError(
                f"the model's output is cut by tokens, as that of {self._tokens_open!r} is; plan its last layer as "
                "'gathered' or 'vocabulary'"
            )

    @contextlib.contextmanager
    def checked(self) -> Iterator[None]:
        """A forward pass, from its begin to its end.

        Raises:
            ValueError: Its outputs are cut, or something in it could not take features that are cut.
        """
        self.begin()
        try:
            yield
        except (AssertionError, RuntimeError) as error:
            if self.features is None or isinstance(error, _out_of_memory()):
                raise
            raise ValueError(f"{open_columns(self.features[0])} ({error})") from error
        self.check_end()

    # -- borders -------------------------------------------------------------------------------------------------------

    def whole(self, x: Any, name: str) -> Any:
        """In front of the columns of this module: all tokens; the gradient is the sum over all shards."""
        if self._opened is not None and self._opened[0] is x:  # query, key and value of one input: one sum
            return self._opened[1]
        one = self.exchange
        self._gathered = self._is_cut(x, name)
        self._tokens_open = ""
        if self._gathered:
            parts = self._parts()
            opened = _cross(
                x, lambda y: one.all_gather(y, SEQUENCE, parts), lambda g: one.reduce_scatter(g, SEQUENCE, parts)
            )
        else:
            opened = _cross(x, lambda y: y.view_as(y), one.all_reduce)
        self._opened = x, opened
        return opened

    def together(self, x: Any, bias: Any, name: str) -> Any:
        """Behind the row of this module: the sum of all shards.

        Of this shard's tokens, if they were cut in front of the columns.
        """
        one, self._opened = self.exchange, None
        if self._gathered:
            parts = self._parts()
            y = _cross(
                x, lambda z: one.reduce_scatter(z, SEQUENCE, parts), lambda g: one.all_gather(g, SEQUENCE, parts)
            )
            self._tokens_open = name
            bias = None if bias is None else self.shared(bias)
        else:
            y = self.sum(x)
        self.close_features()
        self._gathered = False
        return y if bias is None else y + bias

    def sum(self, x: Any) -> Any:
        """The sum of all shards, which all go on with."""
        return _cross(x, self.exchange.all_reduce, lambda g: g)

    def shared(self, parameter: Any) -> Any:
        """A whole parameter for this shard's tokens; the gradient is the sum over all shards."""
        return _cross(parameter, lambda x: x.view_as(x), self.exchange.all_reduce)

    def own(self, x: Any, axis: int) -> Any:
        """This shard's part of a whole tensor."""
        one, parts = self.exchange, _lengths(x.shape[axis], self.exchange.size)
        start = sum(parts[: one.rank])
        return _cross(
            x, lambda y: y.narrow(axis, start, parts[one.rank]).clone(), lambda g: one.all_gather(g, axis, parts)
        )

    def joined(self, x: Any, axis: int, length: int) -> Any:
        """All parts, which all shards go on with."""
        one, parts = self.exchange, _lengths(length, self.exchange.size)
        start = sum(parts[: one.rank])
        return _cross(x, lambda y: one.all_gather(y, axis, parts), lambda g: g.narrow(axis, start, parts[one.rank]))

    # -- what is cut ---------------------------------------------------------------------------------------------------

    def open_features(self, name: str, width: int) -> None:
        """The output of a module is cut by features from here on."""
        self.features = name, width
        self._begin_random()

    def close_features(self) -> None:
        """It is whole again."""
        self.features = None
        self._end_random()

    def scatter(self, x: Any, name: str) -> Any:
        """The output of this module is cut by tokens from here on, if there are enough.

        Raises:
            TypeError: It is no tensor.
        """
        if not hasattr(x, "ndim"):
            raise TypeError(f"plan: {name!r} gives a {type(x).__name__}; 'scatter' is for modules that give one tensor")
        if self._length is not None or x.ndim < 3 or x.shape[SEQUENCE] < self.exchange.size:
            return x
        self._length, self._tokens_open = x.shape[SEQUENCE], name
        return self.own(x, SEQUENCE)

    def of_tokens(self, x: Any, name: str, module: Any, function: Callable[[Any], Any]) -> Any:
        """The function of a module for single tokens, each shard for its own; whole again if it was."""
        cut = self._is_cut(x, name)
        if not cut and (x.ndim < 3 or x.shape[SEQUENCE] < self.exchange.size):
            return function(x)
        parameters = dict(module._parameters)
        module._parameters.update({key: self.shared(one) for key, one in parameters.items() if one is not None})
        self._begin_random()
        try:
            y = function(x if cut else self.own(x, SEQUENCE))
        finally:
            module._parameters.update(parameters)
        self._end_random()
        return y if cut else self.joined(y, SEQUENCE, x.shape[SEQUENCE])

    def _is_cut(self, x: Any, name: str) -> bool:
        """The tokens of what this module gets are those of this shard.

        Raises:
            ValueError: It cannot be told: the axis of the tokens is another one.
        """
        if self._length is None or self.exchange.size == 1:
            return False
        if x.ndim >= 3 and x.shape[SEQUENCE] in (self._parts()[self.exchange.rank], self._length):
            return bool(x.shape[SEQUENCE] != self._length)
        raise ValueError(
            f"plan: {name!r} gets a tensor of shape {list(x.shape)} behind 'scatter'; tensors must have the shape "
            f"[batch, tokens, features] there, with {self._length} tokens in all"
        )

    def _parts(self) -> list[int]:
        assert self._length is not None
        return _lengths(self._length, self.exchange.size)

    # -- random numbers ------------------------------------------------------------------------------------------------

    def _begin_random(self) -> None:
        """From here on, random numbers of this shard's own, which depend on those before: equal in a recomputation."""
        import torch

        if self._whole_random is None and self.exchange.size > 1:
            drawn = int(torch.randint(1 << 62, ()))
            self._whole_random = torch.get_rng_state(), _cuda_state()
            seeded(seed_of(drawn, self.exchange.rank))

    def _end_random(self) -> None:
        """The random numbers that all shards share go on."""
        import torch

        if self._whole_random is not None:
            host, device = self._whole_random
            self._whole_random = None
            torch.set_rng_state(host)
            if device is not None:
                torch.cuda.set_rng_state(device)


def _cross(x: Any, there: Callable[[Any], Any], back: Callable[[Any], Any]) -> Any:
    return _crossing().apply(x, there, back)


def _lengths(length: int, size: int) -> list[int]:
    return [share.stop - share.start for share in shares(length, size)]


def _out_of_memory() -> Any:
    import torch

    return torch.OutOfMemoryError


def _cuda_state() -> Any:
    import torch

    return torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
