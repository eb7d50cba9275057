"""``Buckets``: the gradients of many parameters in few long arrays, so that a few collectives add them up."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["Buckets"]

BUCKET_BYTES = 32 << 20
"""Bytes of a bucket at most, unless a parameter alone has more."""


class Buckets:
    """Flat arrays with room for the gradients (or the values) of tensors, one after the other.

    Gradients are computed right into the buckets: each parameter's ``grad`` is a view of its part.

    Args:
        tensors: Parameters, or buffers.
        of: ``"gradients"``, or ``"values"``: copies of the tensors themselves.

    Attributes:
        flats: The arrays; each has one dtype, and 32 MiB or one tensor.
        views: For each array, its tensors with their parts of it.
    """

    def __init__(self, tensors: Sequence[Any], of: str = "gradients") -> None:
        self._of_values = of == "values"
        groups: list[list[Any]] = []
        open_group: dict[Any, tuple[list[Any], int]] = {}
        for tensor in tensors:
            group, nbytes = open_group.get(tensor.dtype, ([], BUCKET_BYTES + 1))
            size = tensor.numel() * tensor.element_size()
            if nbytes + size > BUCKET_BYTES:
                group, nbytes = [], 0
                groups.append(group)
            group.append(tensor)
            open_group[tensor.dtype] = group, nbytes + size
        self.flats: list[Any] = []
        self.views: list[list[tuple[Any, Any]]] = []
        for group in groups:
            flat = group[0].new_zeros(sum(tensor.numel() for tensor in group))
            self.flats.append(flat)
            parts = flat.split([tensor.numel() for tensor in group])
            self.views.append([(tensor, part.view(tensor.shape)) for tensor, part in zip(group, parts, strict=True)])

    def zero(self) -> None:
        """Set all gradients to 0, and have the next ones computed into the buckets."""
        for flat in self.flats:
            flat.zero_()
        for tensor, view in self._all:
            tensor.grad = view

    def collect(self, at: int | None = None) -> None:
        """Bring in what is elsewhere: values, and gradients of a model that replaced its own ``grad``.

        Args:
            at: Of this array only.
        """
        for tensor, view in self._all if at is None else self.views[at]:
            if self._of_values:
                view.copy_(tensor)
            elif tensor.grad is None:
                view.zero_()
            elif tensor.grad.is_sparse:
                raise TypeError("the gradient of a parameter is sparse; use embeddings with sparse=False")
            elif tensor.grad.data_ptr() != view.data_ptr():
                view.copy_(tensor.grad)
                tensor.grad = view

    def spread(self) -> None:
        """Copy the values back into their tensors."""
        for tensor, view in self._all:
            tensor.copy_(view)

    @property
    def _all(self) -> Iterator[tuple[Any, Any]]:
        return itertools.chain.from_iterable(self.views)

    def norm(self) -> float:
        """L2 norm of all buckets together."""
        squares = [float(flat.float().norm() if flat.dtype.itemsize < 4 else flat.norm()) ** 2 for flat in self.flats]
        return float(sum(squares) ** 0.5)

    def scale(self, factor: float) -> None:
        """Multiply all buckets."""
        if factor != 1.0:
            for flat in self.flats:
                flat.mul_(factor)
