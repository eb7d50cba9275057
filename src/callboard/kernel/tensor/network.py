"""Networks: a sum of products of tensors, as steps with one or two operands each.

Both backends execute these steps. The order of the pairwise contractions is opt_einsum's (Smith and Gray, "opt_einsum",
J. Open Source Softw. 3(26), 2018), and depends on modes and extents alone.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from callboard.core.layout import layout_of
from callboard.kernel.tensor.modes import Label, Tensor

__all__ = ["Optimize", "Step", "by_step", "network", "packed"]

Optimize = Literal["auto", "optimal", "dp", "greedy", "branch-all", "branch-2"]
"""Path algorithms of opt_einsum; only deterministic ones."""


class Step(NamedTuple):
    """``result = sum(first)``, or ``result = sum(first * second)``, over the modes that the result has not.

    Operands are numbered: first those of the op, then the results of the steps. With two operands, each mode is in both
    or in the result: a mode that only one of them has was summed in a step before.

    Attributes:
        operands: One or two.
        result: Row-major; for the last step, the op's own result in its layout.
    """

    operands: tuple[int, ...]
    result: Tensor


def network(
    inputs: Sequence[Tensor], output: Tensor, extents: Mapping[Label, int], optimize: Optimize = "auto"
) -> list[Step]:
    """The steps that compute ``output``.

    Args:
        inputs: Operands, at least one; all have the same dtype.
        output: Result; its modes are among those of the inputs.
        extents: Extents of all modes.
        optimize: Strategy of opt_einsum.
    """
    tensors = list(inputs)
    steps: list[Step] = []
    left = list(range(len(inputs)))  # numbers of the operands that are left, in opt_einsum's order

    def add(operands: tuple[int, ...], result: Tensor) -> int:
        steps.append(Step(operands, result))
        tensors.append(result)
        return len(tensors) - 1

    def summed(number: int, wanted: set[Label]) -> int:
        """The operand without the modes that no other operand or output has."""
        tensor = tensors[number]
        kept = [label for label in by_step(tensor) if label in wanted]
        return number if len(kept) == len(tensor.labels) else add((number,), packed(kept, tensor, extents))

    if len(left) == 1:
        add((0,), output)
        return steps
    for pair in _path(inputs, output, extents, optimize):
        chosen = [left[i] for i in pair]
        left = [number for number in left if number not in chosen]
        wanted = {label for number in left for label in tensors[number].labels}.union(output.labels)
        first = chosen[0]
        for at, second in enumerate(chosen[1:], 2):
            later = wanted.union(*(tensors[number].labels for number in chosen[at:]))
            first, second = (
                summed(first, later.union(tensors[second].labels)),
                summed(second, later.union(tensors[first].labels)),
            )
            if not left and at == len(chosen):
                add((first, second), output)
                return steps
            first = add((first, second), _between(tensors[first], tensors[second], later, extents))
        left.append(first)
    raise AssertionError("a path ends with one operand")  # opt_einsum's always do


def by_step(tensor: Tensor) -> list[Label]:
    """Return the modes in the order of memory, the longest steps first."""
    steps = tensor.layout.strides
    return [tensor.labels[i] for i in sorted(range(len(steps)), key=lambda i: -abs(steps[i]))]


def packed(labels: Sequence[Label], like: Tensor, extents: Mapping[Label, int]) -> Tensor:
    """A row-major tensor of these modes."""
    return Tensor(tuple(labels), layout_of(like.layout.dtype, tuple(extents[x] for x in labels)))


def _between(a: Tensor, b: Tensor, wanted: set[Label], extents: Mapping[Label, int]) -> Tensor:
    """The layout of an intermediate result: a stack of matrices, as a matrix product writes it."""
    both = [x for x in by_step(a) if x in b.labels and x in wanted]
    rows = [x for x in by_step(a) if x not in b.labels]
    columns = [x for x in by_step(b) if x not in a.labels]
    return packed([*both, *rows, *columns], a, extents)


def _path(
    inputs: Sequence[Tensor], output: Tensor, extents: Mapping[Label, int], optimize: Optimize
) -> Sequence[Sequence[int]]:
    if len(inputs) == 2:
        return [(0, 1)]
    import opt_einsum

    symbols = {label: opt_einsum.get_symbol(i) for i, label in enumerate(extents)}
    terms = ["".join(symbols[x] for x in tensor.labels) for tensor in inputs]
    result = "".join(symbols[x] for x in output.labels)
    # An extent of 0 makes everything cost nothing, and "dp" then finds no way at all.
    shapes = [tuple(max(n, 1) for n in tensor.layout.shape) for tensor in inputs]
    path, _ = opt_einsum.contract_path(f"{','.join(terms)}->{result}", *shapes, shapes=True, optimize=optimize)
    return [tuple(pair) for pair in path]
