"""Device-side control flow: the steps of a recording as tasks, and as choices between tasks."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from callboard.device.host.context.admission.graphs.lanes import Choice, Task
from callboard.device.protocol.recording import ScriptBlock
from callboard.kernel.conditional import Conditional

__all__ = ["arranged", "inside", "kinds"]


def arranged(
    steps: Sequence[int], blocks: Iterable[ScriptBlock], task: Callable[[int], Task], address: Callable[[int, int], int]
) -> list[Task | Choice]:
    """Adjacent steps in their order.

    Args:
        steps: Positions of the steps.
        blocks: The blocks of the recording; one is among these steps with all of its own, or with none.
        task: The task of a step.
        address: Returns the address of a byte, given an operand and the bytes from its start.
    """
    first, end = steps[0], steps[-1] + 1
    rest = deque(block for block in blocks if first <= block.bodies[0][0] < end)

    def within(at: int, end: int) -> list[Task | Choice]:
        items: list[Task | Choice] = []
        while rest and rest[0].bodies[0][0] < end:
            block = rest.popleft()
            items += [task(step) for step in range(at, block.bodies[0][0])]
            at = block.bodies[-1][1]
            turns = address(*block.turns) if block.turns else 0
            what = Conditional(block.kind, address(block.operand, block.offset), block.dtype, turns, block.most)
            bodies = [within(*body) for body in block.bodies]
            items.append(Choice(what, bodies, at - block.bodies[0][0]))
        return [*items, *(task(step) for step in range(at, end))]

    return within(first, end)


def inside(blocks: Iterable[ScriptBlock]) -> frozenset[int]:
    """The steps that a value decides on."""
    return frozenset(step for block in blocks for first, end in block.bodies for step in range(first, end))


def kinds(blocks: Iterable[ScriptBlock]) -> frozenset[str]:
    """The features the device must support: the kinds of the blocks, and ``"else"``."""
    return frozenset("else" if block.kind == "if" and len(block.bodies) > 1 else block.kind for block in blocks)
