"""``Cutting``: the weights of a model, cut in place one by one; tied weights once."""

from typing import Any

from callboard.train.tensor.cuts import Cut

__all__ = ["Cutting"]


class Cutting:
    """Replaces parameters by this shard's parts.

    Args:
        model: The model.
        rank, size: Number of this shard, and of all.
    """

    def __init__(self, model: Any, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._model = model
        self._names: dict[int, list[str]] = {}  # of each parameter; several if it is tied
        self._whole: dict[str, Any] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            self._names.setdefault(id(parameter), []).append(name)
            self._whole[name] = parameter
        self._parts: dict[int, Any] = {}
        self._cuts: dict[str, Cut] = {}

    def check_linear(self, name: str, module: Any, kind: str) -> None:
        """Look whether it is a linear layer.

        Raises:
            TypeError: It is another module.
        """
        import torch

        if not isinstance(module, torch.nn.Linear):
            raise TypeError(f"plan: {name!r} is a {type(module).__name__}; {kind!r} is for torch.nn.Linear")

    def cut(self, name: str, cut: Cut) -> None:
        """Cut the parameter of this name.

        Raises:
            ValueError: It has been cut in another way, or is shorter than the number of shards.
        """
        import torch

        whole = self._whole[name]
        if name in self._cuts or any(self._cuts.get(other, cut) != cut for other in self._names[id(whole)]):
            raise ValueError(f"plan: {name!r} is cut twice, or is tied to a weight that is cut in another way")
        if any(not sum(stop - start for start, stop in pieces) for pieces in cut.pieces):
            raise ValueError(
                f"plan: {name!r}, of shape {list(whole.shape)}, cannot be cut into {self.size} parts along axis "
                f"{cut.axis}; use fewer devices, or leave the module out of the plan"
            )
        part = self._parts.get(id(whole))
        if part is None:
            part = self._parts[id(whole)] = torch.nn.Parameter(
                cut.part(whole.detach(), self.rank), requires_grad=whole.requires_grad
            )
        owner, _, own = name.rpartition(".")
        setattr(self._model.get_submodule(owner), own, part)
        self._cuts[name] = cut

    def finished(self) -> dict[str, Cut]:
        """The cuts, by names.

        Raises:
            ValueError: A weight was cut, and another module that it is tied to was not.
        """
        for names in self._names.values():
            left = [name for name in names if name not in self._cuts]
            if left and len(left) < len(names):
                cut = next(name for name in names if name in self._cuts)
                raise ValueError(f"plan: {cut!r} is tied to {left[0]!r}, whose module is not in the plan")
        return self._cuts
