"""``OnnxFile``: what an ONNX file takes and gives; ``Opened``: the file with the engine that has read it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from callboard.kernel.engine.inputs.budget import BUDGET
from callboard.serve.tensors import Tensor

__all__ = ["OnnxEngine", "OnnxFile", "Opened", "RunOptions"]

OnnxEngine = Literal["onnxruntime", "callboard"]
"""What executes a file: ONNX Runtime, or the ops of the device."""


class OnnxFile(msgspec.Struct, frozen=True):
    """The inputs and outputs of a file: name, datatype and shape, -1 for dynamic extents.

    Attributes:
        inputs: Inputs in the order of the file.
        outputs: The outputs that are tensors of known types.
        left_out: Names and types of the others.
        provider: The engine of the plan; of a session, ONNX Runtime's execution provider.
    """

    inputs: list[tuple[str, str, list[int]]]
    outputs: list[tuple[str, str, list[int]]]
    left_out: list[str]
    provider: str

    @property
    def joins(self) -> bool:
        """True if requests can be batched: the first extent of each input and output is dynamic."""
        return all(shape[:1] == [-1] for _, _, shape in [*self.inputs, *self.outputs])

    def tensors(self) -> tuple[list[Tensor], list[Tensor]]:
        """Inputs and outputs as models declare them."""
        inputs, outputs = ([Tensor(*each) for each in side] for side in (self.inputs, self.outputs))
        return inputs, outputs


@dataclass(frozen=True)
class RunOptions:
    """How a file is executed.

    Attributes:
        threads: Threads of an execution on a CPU; 0: as ONNX Runtime chooses.
        engine: What executes it; None: as ``dev.engine`` chooses.
        budget: Seconds of an execution.
    """

    threads: int = 0
    engine: OnnxEngine | None = None
    budget: float = BUDGET


@dataclass(frozen=True)
class Opened:
    """A file that an engine has read.

    Attributes:
        file: Its inputs and outputs.
        run: Gives the outputs of inputs, both in the file's order.
        stop: Begins to release what it holds.
        end: Releases that, and waits for it.
    """

    file: OnnxFile
    run: Callable[[list[Any]], Awaitable[list[Any]]]
    stop: Callable[[], object]
    end: Callable[[], Awaitable[object]]
