"""Casts of one value to one dtype, of which one is enough."""

import msgspec

from callboard.kernel.engine.fusing.view import View
from callboard.kernel.engine.mapped.steps import Step

__all__ = ["twins"]


def twins(view: View) -> list[Step]:
    """The steps without casts that are made already. Outputs, and values that inner graphs read, keep their own."""
    kept = {name for step in view.steps for name in step.captured} | set(view.outputs)
    first: dict[tuple[str, str], str] = {}
    names: dict[str, str] = {}
    steps = []
    for step in view.steps:
        inputs = tuple(names.get(name, name) for name in step.inputs)
        if step.op == "Cast":
            made = first.setdefault((inputs[0], repr(sorted(step.attributes.items()))), step.outputs[0])
            if made != step.outputs[0] and step.outputs[0] not in kept:
                names[step.outputs[0]] = made
                continue
        steps.append(step if inputs == step.inputs else msgspec.structs.replace(step, inputs=inputs))
    return steps
