"""Proposals that branch: which tokens of a tree are kept. Pure functions; the target's choice is an argument."""

from collections.abc import Callable, Sequence

__all__ = ["chain", "children", "path_to", "walk"]


def children(tokens: Sequence[int], parents: Sequence[int]) -> list[dict[int, int]]:
    """For the end of the text and then for each node: the node that each next token leads to.

    Raises:
        ValueError: A parent does not come before its child, or two children of a node are the same token.
    """
    if len(parents) != len(tokens):
        raise ValueError(f"the draft proposed {len(tokens)} tokens with {len(parents)} parents")
    found: list[dict[int, int]] = [{} for _ in range(len(tokens) + 1)]
    for node, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        if not -1 <= parent < node:
            raise ValueError(
                f"the draft's token {node} has the parent {parent}; parents come first, -1 is the text's end"
            )
        if found[parent + 1].setdefault(token, node) != node:
            raise ValueError(f"the draft proposed token {token} twice at one place")
    return found


def chain(parents: Sequence[int]) -> list[int]:
    """The nodes from the end of the text on, by the first child of each."""
    found: list[int] = []
    for node, parent in enumerate(parents):
        if parent == (found[-1] if found else -1):
            found.append(node)
    return found


def path_to(node: int, parents: Sequence[int]) -> list[int]:
    """The nodes from the end of the text to this one, itself included; none for -1."""
    found: list[int] = []
    while node >= 0:
        found.append(node)
        node = parents[node]
    return found[::-1]


def walk(follow: Sequence[dict[int, int]], choose: Callable[[int, int, dict[int, int]], int]) -> tuple[list[int], int]:
    """Follow the target's own choices as far as the tree has them.

    At each place the target chooses its token as if there were no proposal, so the tokens are those of plain decoding,
    exactly or in distribution, whatever the tree. Miao et al. 2024, "SpecInfer", for the verification of all branches
    in one pass.

    Args:
        follow: Children of each node, from :func:`children`.
        choose: ``choose(row, depth, children)`` gives the token after a place: row 0 is the end of the text, row ``n``
            is after node ``n - 1``.

    Returns:
        The nodes that are kept, and the token after them.
    """
    path: list[int] = []
    while True:
        row = path[-1] + 1 if path else 0
        token = choose(row, len(path), follow[row])
        node = follow[row].get(token)
        if node is None:
            return path, token
        path.append(node)
