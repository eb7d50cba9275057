"""How a recording crosses the wire: as the signature of its replays.

A signature that begins with :data:`MARK` is a :class:`Script`, the whole recording. So the host has its plan as it has
those of single ops, a replay is one call that names the script by its number, and a context that takes over is sent the
script with the first replay and records it again. The bindings of the call are the buffers of ``operands``; its numbers
are how often to replay, then the numbers of :attr:`Step.drawn` in the first replay, then what is added to each of
them with every further one.
"""

import msgspec

from callboard.device.protocol.messages import Plain, ProtocolError

__all__ = ["MARK", "Script", "ScriptOperand", "Step", "read_script", "write_script"]

MARK = b"\x00R"
"""Begins neither the signature of an op, which is a MessagePack array, nor a number in the place of one."""


class Step(Plain):
    """One op of a recording.

    Attributes:
        signature: As of a call.
        bindings: ``[operand, offset, …]``: of each operand of the op, which of the script's operands has it, and where.
        numbers: As of a call.
        outputs: The same as ``bindings``, of the outputs that the op would have made.
        drawn: Positions in ``numbers`` of those that every replay changes.
        after: Earlier steps that it has to come after directly, because of what they read and write.
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
        name: For messages.
        reads, writes: Whether ops read what it had before the replay; whether they write it.
        whole: Bytes that are overwritten before they are read, when that is the whole buffer; otherwise -1.
        low, high: The first byte that ops use and the byte after the last, from the operand's place.
    """

    name: str
    reads: bool
    writes: bool
    whole: int
    low: int
    high: int


class Script(Plain):
    """A recording.

    Attributes:
        id: From the counter of ops and buffers; freeing it as a buffer gives the recording up.
        operands: In the order of a replay's bindings.
        steps: In program order.
    """

    id: int
    operands: list[ScriptOperand]
    steps: list[Step]


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
    return script
