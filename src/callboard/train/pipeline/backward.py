"""A backward pass in two parts: the gradients of the inputs first, those of the weights when there is time.

Nodes of the graph through which an input is reached are the *trunk*. The first part runs the trunk for the inputs'
gradients alone, and keeps what arrived at the nodes where weights branch off. The second part runs those nodes once
more, for the weights alone: no product is computed twice.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

__all__ = ["NEEDS", "input_gradients", "whole"]

NEEDS = "torch.fx.experimental.symbolic_shapes"
"""A module that torch imports, in seconds, when a backward pass first begins at a node, as second parts do."""

Rest = Callable[[], None]
"""Adds the gradients of the weights to their ``grad``."""


def whole(roots: Sequence[Any], gradients: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """A backward pass in one part: adds the gradients of the weights up, and returns those of the inputs."""
    for one in inputs:
        one.grad = None
    _whole(roots, gradients)
    return [one.grad for one in inputs]


def _whole(roots: Sequence[Any], gradients: Sequence[Any]) -> None:
    import torch

    if roots:
        torch.autograd.backward(_begin(roots, gradients))


def _begin(roots: Sequence[Any], gradients: Sequence[Any]) -> Any:
    """A number whose backward pass begins at the roots with these gradients, without an import of :data:`NEEDS`."""
    return _beginning().apply(gradients, *roots)


@cache
def _beginning() -> Any:
    import torch

    class Beginning(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, gradients: Sequence[Any], *roots: Any) -> Any:
            ctx.gradients = gradients
            return roots[0].new_zeros(())

        @staticmethod
        def backward(ctx: Any, *_: Any) -> Any:
            return None, *ctx.gradients

    return Beginning


def input_gradients(
    roots: Sequence[Any], gradients: Sequence[Any], inputs: Sequence[Any]
) -> tuple[list[Any], Rest | None]:
    """The first part.

    Args:
        roots: What the pass begins at.
        gradients: Their gradients.
        inputs: Leaves.

    Returns:
        The gradients of the inputs, and the second part; None if weights are used so that the pass cannot be split, and
        has been done as a whole.
    """
    import torch

    if not inputs or not roots:
        return [None] * len(inputs), lambda: _whole(roots, gradients)
    edge = torch.autograd.graph.get_gradient_edge
    ends = {edge(one).node for one in inputs}
    starts = [edge(one).node for one in roots]
    trunk = _leading_to(starts, ends)
    branches = {node: _leaves(node, trunk) for node in trunk - ends}
    weights = [weight for leaves in branches.values() for weight in leaves]
    if len({id(weight) for weight in weights}) < len(weights):
        return whole(roots, gradients, inputs), None
    kept: list[tuple[Any, list[Any], Any]] = []
    hooks = [
        node.register_prehook(lambda arrived, node=node, leaves=leaves: kept.append((node, leaves, arrived)))
        for node, leaves in branches.items()
        if leaves
    ]
    beside = [at for at, start in enumerate(starts) if start not in trunk]
    along = [at for at in range(len(roots)) if at not in beside]
    try:
        found = torch.autograd.grad(
            _begin([roots[at] for at in along], [gradients[at] for at in along]),
            inputs,
            retain_graph=True,
            allow_unused=True,
        )
    finally:
        for hook in hooks:
            hook.remove()

    def rest() -> None:
        _whole([roots[at] for at in beside], [gradients[at] for at in beside])
        for node, leaves, arrived in kept:
            some = [at for at, one in enumerate(arrived) if one is not None]
            edges = [torch.autograd.graph.GradientEdge(node, at) for at in some]
            torch.autograd.backward(edges, [arrived[at] for at in some], inputs=leaves)
        kept.clear()

    return list(found), rest


def _next(node: Any) -> Iterable[Any]:
    return (one for one, _ in node.next_functions if one is not None)


def _leading_to(starts: Sequence[Any], ends: set[Any]) -> set[Any]:
    """The nodes from which an end is reached, the ends included."""
    leading, seen = set(ends), set(ends)
    stack = [(start, False) for start in starts]
    while stack:
        node, done = stack.pop()
        if done:
            if any(one in leading for one in _next(node)):
                leading.add(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(one, False) for one in _next(node)]
    return leading


def _leaves(node: Any, trunk: set[Any]) -> list[Any]:
    """The weights that are reached from a node beside the trunk."""
    found, seen = [], set(trunk)
    stack = list(_next(node))
    while stack:
        one = stack.pop()
        if one in seen:
            continue
        seen.add(one)
        variable = getattr(one, "variable", None)
        if variable is not None:
            found.append(variable)
        stack += _next(one)
    return found
