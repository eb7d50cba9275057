"""A model in stages: where it is cut, and which values cross the cuts."""

import inspect
import itertools
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from callboard.train.pipeline.routes import Ports
from callboard.train.pipeline.tracing import CURE, traced

__all__ = ["StageModule", "ports_of", "split"]

LISTED = "pass a list of stages, each a torch.nn.Module"


class StageModule(NamedTuple):
    """A part of a model.

    Attributes:
        module: A ``torch.nn.Module``, with the names of the whole model.
        ports: Its values.
        graphs: If its calls were recorded: by ``training``, those of this mode; None: they are others.
    """

    module: Any
    ports: Ports
    graphs: dict[bool, Any] | None = None


def split(model: Any, at: int | Sequence[str]) -> tuple[list[StageModule], list[str]]:
    """Cut a model.

    A ``torch.nn.Sequential`` is cut between its children; the calls of any other module are traced with
    :mod:`torch.fx`, and cut where a named child is first called.

    Args:
        model: In training mode.
        at: Number of stages, with about as many weights each; or names of the modules with which the stages after the
            first one begin.

    Returns:
        The stages, and the names of the model's inputs.

    Raises:
        TypeError: The model cannot be traced.
        ValueError: It cannot be cut there, or two stages would have the same weight.
    """
    import torch

    children = dict(model.named_children())
    if isinstance(model, torch.nn.Sequential) and (isinstance(at, int) or all(name in children for name in at)):
        names = list(children)
        weights = [sum(one.numel() for one in child.parameters()) for child in children.values()]
        cuts = balanced(weights, at) if isinstance(at, int) else _ascending([names.index(name) for name in at], at)
        bounds = itertools.pairwise([0, *cuts, len(names)])
        modules = [
            torch.nn.Sequential(OrderedDict((name, children[name]) for name in names[start:stop]))
            for start, stop in bounds
        ]
        stages = [StageModule(module, ports_of(module)) for module in modules]
        entry = ports_of(modules[0]).inputs
    else:
        stages, entry = _traced(model, at)
    _complete(stages, model)
    _refuse_shared(stages)
    return stages, entry


def ports_of(module: Any) -> Ports:
    """The parameters of a module's ``forward``."""
    parameters = inspect.signature(module.forward).parameters.values()
    plain = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    return Ports(
        [one.name for one in plain],
        [one.name for one in plain if one.default is not one.empty],
        any(one.kind is one.VAR_POSITIONAL for one in parameters),
    )


def balanced(weights: Sequence[int], parts: int) -> list[int]:
    """Where to cut a row so that the heaviest part is as light as possible, and no part is empty.

    Raises:
        ValueError: Fewer items than parts.
    """
    if len(weights) < parts:
        raise ValueError(f"the model has {len(weights)} modules in a row, too few for {parts} stages")
    low, high = max(weights), sum(weights)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_filled(weights, parts, middle)) == parts else (middle + 1, high)
    return _filled(weights, parts, low)[:-1]


def _filled(weights: Sequence[int], parts: int, most: int) -> list[int]:
    """The ends of parts of at most so much, each as long as the following ones leave it; too many if need be.

    Args:
        weights: Each is at most ``most``.
        parts: Parts that are to have an item each.
        most: Weight of a part.
    """
    ends: list[int] = []
    weight = 0
    for at, one in enumerate(weights):
        if at and (weight + one > most or len(weights) - at < parts - len(ends)):
            ends.append(at)
            weight = 0
        weight += one
    return [*ends, len(weights)]


def _ascending(cuts: list[int], at: object) -> list[int]:
    if any(later <= earlier for earlier, later in itertools.pairwise([0, *cuts])):
        raise ValueError(f"split is {at!r}; name modules in the order in which they are called, not the first one")
    return cuts


def _traced(model: Any, at: int | Sequence[str]) -> tuple[list[StageModule], list[str]]:

    try:
        graph = traced(model)
    except Exception as error:  # whatever the model does with what it is traced with
        told = CURE in str(error)
        why = f": {error}" if told else f", because its forward depends on values or shapes ({error}); {LISTED}"
        raise TypeError(f"{type(model).__name__} cannot be cut{why}") from error
    evaluating = _evaluating(model, graph)
    entry = [node for node in graph.nodes if node.op == "placeholder"]
    result = next(node for node in graph.nodes if node.op == "output")
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output", "get_attr")]
    if isinstance(at, int):
        cuts = balanced(_weights(model, nodes), at)
    else:
        cuts = _ascending([_first(name, nodes) for name in at], at)
    bounds = itertools.pairwise([0, *cuts, len(nodes)])
    where = {node: stage for stage, (start, stop) in enumerate(bounds) for node in nodes[start:stop]}
    stages = []
    for stage in range(len(cuts) + 1):
        own = [node for node in nodes if where[node] == stage]
        part = _stage(model, own, where, result, stage == len(cuts))
        twin = None
        if evaluating is not None:
            of = {evaluating[node]: at for node, at in where.items()}
            twin = _stage(model, [evaluating[node] for node in own], of, evaluating[result], stage == len(cuts))
        graphs = {True: part.module.graph, False: None if twin is None else twin.module.graph}
        stages.append(part._replace(graphs=graphs))
    return stages, [node.target for node in entry]


def _evaluating(model: Any, graph: Any) -> dict[Any, Any] | None:
    """The nodes of the graph in evaluation mode, by those of this graph; None: the model then makes other calls.

    ``functional.dropout(x, training=self.training)`` is recorded with the value that ``training`` has.
    """
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        nodes = list(traced(model).nodes)
    except Exception:  # whatever the model does with what it is traced with
        return None
    finally:
        for part, mode in modes:
            part.training = mode
    calls = [[(node.op, str(node.target), node.name) for node in some] for some in (graph.nodes, nodes)]
    return dict(zip(graph.nodes, nodes, strict=True)) if calls[0] == calls[1] else None


def _stage(model: Any, nodes: list[Any], where: dict[Any, int], result: Any, last: bool) -> StageModule:
    import torch
    from torch.fx.node import map_arg

    graph, copies, optional = torch.fx.Graph(), {}, []
    inputs: dict[str, Any] = {}
    wanted = [*(one for node in nodes for one in node.all_input_nodes), *(result.all_input_nodes if last else ())]
    for one in dict.fromkeys(wanted):
        if one.op != "get_attr" and one not in nodes:
            name = one.target if one.op == "placeholder" else one.name
            default = one.args if one.op == "placeholder" else ()
            copies[one] = inputs[name] = graph.placeholder(name, None, *default)
            if default:
                optional.append(name)
    for one in dict.fromkeys(wanted):
        if one.op == "get_attr":
            copies[one] = graph.get_attr(one.target)
    for node in nodes:
        copies[node] = graph.node_copy(node, lambda one: copies[one])
    if last:
        graph.output(map_arg(result.args[0], lambda one: copies[one]))
        return StageModule(torch.fx.GraphModule(model, graph), Ports(list(inputs), optional, outputs=[]))
    own = set(nodes)
    leaving = [node for node in nodes if any(user not in own for user in node.users)]
    graph.output(tuple(copies[node] for node in leaving))
    names = [node.name for node in leaving]
    return StageModule(torch.fx.GraphModule(model, graph), Ports(list(inputs), optional, outputs=names))


def _first(name: str, nodes: list[Any]) -> int:
    """The first call of a module."""
    for at, node in enumerate(nodes):
        around = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
        called = [node.target] if node.op == "call_module" else []
        if any(path == name or path.startswith(f"{name}.") for path in [*around, *called]):
            return at
    raise ValueError(f"split names {name!r}, which the model does not call; the names are those of named_modules()")


def _weights(model: Any, nodes: list[Any]) -> list[int]:
    """Elements of the weights that each call is the first one to use."""
    seen: set[int] = set()

    def of(path: str) -> Any:
        parent, _, name = path.rpartition(".")
        return getattr(model.get_submodule(parent), name)

    counts = []
    for node in nodes:
        used = list(of(node.target).parameters()) if node.op == "call_module" else []
        used += [of(one.target) for one in node.all_input_nodes if one.op == "get_attr"]
        counts.append(sum(one.numel() for one in used if id(one) not in seen))
        seen |= {id(one) for one in used}
    return counts


def _complete(stages: Sequence[StageModule], model: Any) -> None:
    """Give parameters and buffers that no call uses to a stage, so that the names of all stages are those of the model.

    Those that are also used under another name go to the stage that uses them, others to the first one.
    """
    own = [dict([*one.module.named_parameters(), *one.module.named_buffers()]) for one in stages]
    names = {name for stage in stages for name in stage.module.state_dict()}
    values = dict([*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)])
    for name in model.state_dict():
        value = values.get(name)
        if name not in names and value is not None:
            used = (at for at, each in enumerate(own) if any(one is value for one in each.values()))
            _give(stages[next(used, 0)].module, name, value)


def _give(module: Any, name: str, value: Any) -> None:
    """Register a parameter or a buffer under a name with dots."""
    import torch

    *path, last = name.split(".")
    for part in path:
        if part not in module._modules:  # hasattr also finds what a traced module has itself: graph, code, meta, ...
            module._modules[part] = torch.nn.Module()  # add_module refuses those names
        module = module._modules[part]
    register = module.register_parameter if isinstance(value, torch.nn.Parameter) else module.register_buffer
    register(last, value)


def _refuse_shared(stages: Sequence[StageModule]) -> None:
    where: dict[int, int] = {}
    for number, stage in enumerate(stages):
        for name, parameter in stage.module.named_parameters():
            first = where.setdefault(id(parameter), number)
            if first != number:
                raise ValueError(
                    f"stages {first} and {number} share the weight {name!r}, which would become two; cut so that one "
                    "stage has all uses of it"
                )
