"""The wire form of a recording: the signature of its replays.

A signature that begins with :data:`MARK` is a :class:`Script`, the whole recording. The host therefore keeps its plan
like those of single ops. A replay is one call that names the script by its number, and a context that takes over is
sent the script with the first replay and records it again. The bindings of the call are the buffers of ``operands``;
its numbers are the number of replays, then the numbers of :attr:`Step.drawn` in the first replay, then the increments
of each of them per further replay.
"""

from itertools import pairwise

import msgspec

from callboard.core.dtype import as_dtype
from callboard.device.protocol.messages import Plain, ProtocolError

__all__ = [
    "KINDS",
    "MARK",
    "MOST_BODIES",
    "Script",
    "ScriptBlock",
    "ScriptOperand",
    "Step",
    "read_script",
    "write_script",
]

MARK = b"\x00R"
"""Begins neither the signature of an op, which is a MessagePack array, nor a number in the place of one."""


MOST_BODIES = 64
"""Bodies of a switch at most."""
KINDS = "if", "while", "switch"
"""Kinds of control flow, as in :class:`Conditional <callboard.kernel.conditional.Conditional>`."""


class Step(Plain):
    """One op of a recording.

    Attributes:
        signature: As in a call.
        bindings: ``[operand, offset, …]``: of each operand of the op, which of the script's operands has it, and where.
        numbers: As in a call.
        outputs: The same as ``bindings``, of the outputs that the op would have made.
        drawn: Positions in ``numbers`` of those that every replay changes.
        after: Earlier steps that must directly precede it, because of the data that they read and write.
        where: The line that made the op.
    """

    signature: bytes
    bindings: list[int]
    numbers: list[int | float]
    outputs: list[int]
    drawn: list[int]
    after: list[int]
    where: str


class ScriptOperand(Plain):
    """A buffer that replays use.

    Attributes:
        name: Name of the operand, for messages.
        reads, writes: True if ops read its contents from before the replay; true if they write it.
        whole: Bytes that are overwritten before they are read, when that is the whole buffer; otherwise -1.
        low, high: The first byte that ops use and the byte after the last, from the operand's place.
    """

    name: str
    reads: bool
    writes: bool
    whole: int
    low: int
    high: int


class ScriptBlock(Plain):
    """Steps that run depending on a value on the device.

    Attributes:
        kind: One of :data:`KINDS`.
        operand, offset: Location of the value: one of the script's operands, and bytes from its start.
        dtype: The dtype of the value.
        turns: ``[operand, offset]`` of the i64 that counts the turns of a loop; empty if none does.
        most: Turns at most, 0 for any number.
        bodies: ``[first, end]`` of each body: its steps, from the first to the one before the end. Bodies are adjacent,
            in order; the value is read before the first body's first step.
    """

    kind: str
    operand: int
    offset: int
    dtype: str
    turns: list[int]
    most: int
    bodies: list[list[int]]


class Script(Plain):
    """A recording.

    Attributes:
        id: Id from the counter of ops and buffers; freeing it like a buffer releases the recording.
        operands: The script's operands, in the order of a replay's bindings.
        steps: The ops, in program order.
        blocks: The blocks, in the order in which they begin; enclosing blocks come first.
        makes: Bytes of the last operands: buffers that every replay makes, the outputs of its call.
    """

    id: int
    operands: list[ScriptOperand]
    steps: list[Step]
    blocks: list[ScriptBlock]
    makes: list[int]


_decode = msgspec.msgpack.Decoder(Script).decode


def write_script(script: Script) -> bytes:
    """The signature of the script's replays."""
    return MARK + msgspec.msgpack.encode(script)


def read_script(signature: bytes) -> Script:
    """The script of such a signature.

    Raises:
        ProtocolError: It is broken.
    """
    try:
        script = _decode(signature[len(MARK) :])
    except msgspec.DecodeError as e:
        raise ProtocolError(f"broken recording: {e}") from e
    for at, step in enumerate(script.steps):
        if any(not 0 <= earlier < at for earlier in step.after):
            raise ProtocolError(f"recording {script.id}: step {at} comes after {step.after}")
        for operand in (*step.bindings[::2], *step.outputs[::2]):
            if not 0 <= operand < len(script.operands):
                raise ProtocolError(f"recording {script.id}: operand {operand} of {len(script.operands)}")
    made = script.operands[len(script.operands) - len(script.makes) :]
    if len(made) < len(script.makes) or any(o.low < 0 or o.high > n for o, n in zip(made, script.makes, strict=True)):
        raise ProtocolError(f"recording {script.id}: its ops do not fit the buffers that it makes, {script.makes}")
    around = [(0, len(script.steps))]
    for block in script.blocks:
        _check_block(script, block, around)
    return script


def _check_block(script: Script, block: ScriptBlock, around: list[tuple[int, int]]) -> None:
    """Refuse a block whose steps or places are not there.

    Args:
        script: Script that the block belongs to.
        block: It.
        around: Steps of the bodies that the blocks so far have begun, the innermost last.
    """
    what = f"recording {script.id}: a block"
    if block.kind not in KINDS or not block.bodies or any(len(body) != 2 for body in block.bodies):
        raise ProtocolError(f"{what} is {block.kind} with {block.bodies}")
    if len(block.bodies) > {"if": 2, "while": 1}.get(block.kind, MOST_BODIES) or block.most < 0:
        raise ProtocolError(f"{what} is {block.kind} with {len(block.bodies)} bodies")
    ends = [at for body in block.bodies for at in body]
    if ends != sorted(ends) or ends[0] == ends[-1] or any(a[1] != b[0] for a, b in pairwise(block.bodies)):
        raise ProtocolError(f"{what} has the bodies {block.bodies}")
    while not around[-1][0] <= ends[0] <= ends[-1] <= around[-1][1]:
        if len(around) == 1 or ends[0] < around[-1][1]:
            raise ProtocolError(f"{what} has the bodies {block.bodies}, which are in part in another one")
        around.pop()
    around += [(first, end) for first, end in reversed(block.bodies) if first < end]
    try:
        nbytes = as_dtype(block.dtype).itemsize
    except (TypeError, ValueError) as e:
        raise ProtocolError(f"{what} goes by {block.dtype!r}") from e
    if len(block.turns) not in (0, 2):
        raise ProtocolError(f"{what} counts in {block.turns}")
    for operand, offset, size in ((block.operand, block.offset, nbytes), *((*block.turns, 8),) * bool(block.turns)):
        if not 0 <= operand < len(script.operands):
            raise ProtocolError(f"{what} goes by operand {operand} of {len(script.operands)}")
        if not script.operands[operand].low <= offset <= script.operands[operand].high - size:
            raise ProtocolError(f"{what} goes by byte {offset} of operand {operand}, which is not checked")
