"""``Shard``: the resident actor that has a range of the weights, and their optimizer, beside a device."""

import importlib
from typing import Any

from callboard.device.protocol.residents.actor import HostContext, ResidentActor
from callboard.train.kinds import Optimizer, optimizer_of
from callboard.train.parameterserver.layout import Piece
from callboard.train.replicas.rates import Groups, Rates
from callboard.train.running.firstsetup import SUPERVISION, FirstSetup
from callboard.train.states import State, pack, unpack

__all__ = ["Shard"]


class Shard(ResidentActor):
    """A range of the weights. A new instance, also after a loss, has none until it is given some.

    Every method names the version that it is about, and gives None where this instance is at another one: its keeper
    then brings it up to date.

    Args:
        pieces: Shapes of the weights.
        optimizer: See :class:`.OptimizerKind`.
        born: See :class:`.FirstSetup`.
    """

    supervision = SUPERVISION

    def __init__(self, pieces: list[Piece], optimizer: Optimizer, born: int = 0) -> None:
        self._pieces = pieces
        self._kind = optimizer
        self._first = FirstSetup(born)

    def prepare(self) -> None:
        importlib.import_module("torch")  # in advance, in the standby, too

    def setup(self, ctx: HostContext) -> None:
        import torch

        self._torch = torch
        self._ctx = ctx
        self._device = ctx.torch_device
        self._weights = [
            torch.nn.Parameter(torch.zeros(piece.shape, dtype=getattr(torch, piece.dtype), device=self._device))
            for piece in self._pieces
        ]
        with self._first.setting_up(ctx):
            self._optimizer = optimizer_of(self._kind, self._weights)
        self._rates = [group["lr"] for group in self._optimizer.param_groups]
        self._groups = Groups.of(self._optimizer)
        self._version = -1

    def begin(self, arrays: list[Any]) -> int:
        """Take these weights as version 0, with the optimizer as it is new."""
        for weight, array in zip(self._weights, arrays, strict=True):
            weight.data.copy_(self._tensor(array).reshape(weight.shape))
        self._version = 0
        return 0

    def update(self, version: int, parts: list[Any], rates: Rates) -> int | None:
        """Make this version from the one before.

        Args:
            version: The new one. If it is here already, nothing happens.
            parts: See :data:`.Part`. A weight without one stays, as in torch.
            rates: The step sizes.
        """
        if self._version == version:
            return version
        if self._version != version - 1:
            return None
        self._version = -1  # until it is done: what fails in between leaves nothing to rely on
        for weight in self._weights:  # also of an update that failed
            weight.grad = None
        for at, rows, values in parts:
            self._weights[at].grad = self._gradient(self._weights[at], rows, values)
        for group, own in zip(self._optimizer.param_groups, rates.of(self._rates), strict=True):
            group.update(own)
        self._optimizer.step()
        for weight in self._weights:
            weight.grad = None
        self._version = version
        return version

    def weights(self, version: int, chosen: list[tuple[int, Any]] | None = None) -> list[Any] | None:
        """Copies of the pieces, or of some rows.

        Args:
            version: The one that they are of.
            chosen: Numbers of pieces, and their rows (None: all); None: all pieces.
        """
        if self._version != version:
            return None
        pairs = chosen if chosen is not None else [(at, None) for at in range(len(self._weights))]
        found = []
        for at, rows in pairs:
            weight = self._weights[at].detach()
            found.append(self._ctx.host(weight if rows is None else weight[self._tensor(rows)]))
        return found

    def groups(self, version: int) -> Groups | None:
        """The optimizer as it was before the first update."""
        return None if self._version != version else self._groups.beginning_with(map(float, self._rates))

    def state(self, version: int) -> State | None:
        """Copies of the weights and of the optimizer's state."""
        if self._version != version:
            return None
        own = [weight.detach() for weight in self._weights], self._optimizer.state_dict(), self._rates
        return pack(own, version, version, self._ctx.host, self._device)

    def load(self, state: State) -> int:
        """Take this state."""
        weights, optimizer, rates = unpack(state)
        self._version = -1
        for weight, value in zip(self._weights, weights, strict=True):
            weight.data.copy_(value)
        self._optimizer.load_state_dict(optimizer)
        self._rates = rates
        self._version = state.step
        return state.step

    def _gradient(self, weight: Any, rows: Any, values: Any) -> Any:
        torch, values = self._torch, self._tensor(values)
        if rows is None:
            return values.reshape(weight.shape)
        rows = self._tensor(rows)
        if self._takes_rows():
            return torch.sparse_coo_tensor(rows[None], values, weight.shape, check_invariants=False).coalesce()
        return torch.zeros_like(weight).index_add_(0, rows, values)

    def _takes_rows(self) -> bool:
        """The optimizer takes sparse gradients, with the numbers of dense ones (or takes no other)."""
        optim = self._torch.optim
        plain = not any(group.get("momentum") or group.get("weight_decay") for group in self._optimizer.param_groups)
        return isinstance(self._optimizer, optim.SparseAdam) or (isinstance(self._optimizer, optim.SGD) and plain)

    def _tensor(self, array: Any) -> Any:
        return self._torch.as_tensor(array, device=self._device)
