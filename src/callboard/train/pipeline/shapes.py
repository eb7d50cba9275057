"""States of the stages and the state of the whole model, as checkpoints have it: each is made from the other."""

from collections.abc import Sequence
from typing import Any

from callboard.train.pipeline.messages import Described
from callboard.train.states import State, pack_host, unpack

__all__ = ["apart", "joined"]


def joined(states: Sequence[State], stages: Sequence[Described]) -> State:
    """The whole model's state: its ``state_dict``, and the optimizers' states by the names of the weights."""
    model: dict[str, Any] = {}
    rules: list[Any] = []
    rates: list[Any] = []
    for state, stage in zip(states, stages, strict=True):
        own, rule, own_rates = unpack(state)
        model |= {stage.prefix + name: value for name, value in own.items()}
        rules.append(_by_name(rule, stage) if rule is not None else None)
        rates.append(own_rates)
    first = states[0]
    return pack_host((model, rules, rates), first.step, first.updates)


def apart(state: State, stages: Sequence[Described]) -> list[State]:
    """The states of stages, which need not be those that the state was joined from.

    Raises:
        RuntimeError: It is the state of another model, or of another trainer.
    """
    model, rules, rates = unpack(state)
    if not isinstance(rules, list) or not all(isinstance(one, dict | None) for one in rules):
        raise RuntimeError("the optimizer's state is not that of a pipeline; use the trainer that saved it")
    of = {name: values for rule in rules if rule is not None for name, values in rule["state"].items()}
    groups = {name: at for at, rule in enumerate(rules) if rule is not None for name in rule["names"]}
    parts = []
    for stage in stages:
        names = [name for name in model if name.startswith(stage.prefix)] if stage.prefix else list(model)
        own = {name.removeprefix(stage.prefix): model[name] for name in names if _belongs(name, stage)}
        rule, own_rates = None, []
        if stage.weights:
            first = stage.prefix + stage.weights[0]
            if first not in groups:
                raise RuntimeError(f"the state has no weight {first!r}; it is that of another model")
            rule = _by_number(rules[groups[first]], of, stage)
            own_rates = rates[groups[first]]
        parts.append(pack_host((own, rule, own_rates), state.step, state.updates))
    return parts


def _belongs(name: str, stage: Described) -> bool:
    return name.removeprefix(stage.prefix) in stage.names


def _by_name(rule: dict[str, Any], stage: Described) -> dict[str, Any]:
    names = [stage.prefix + name for name in stage.weights]
    return {**rule, "state": {names[at]: values for at, values in rule["state"].items()}, "names": names}


def _by_number(rule: dict[str, Any], of: dict[str, Any], stage: Described) -> dict[str, Any]:
    """An optimizer's state for the weights of a stage, with the settings of the one that had the first of them."""
    names = [stage.prefix + name for name in stage.weights]
    groups = rule["param_groups"]
    if names != rule["names"]:
        if len(groups) > 1:
            raise RuntimeError("the optimizer has several groups of weights; resume with the stages that saved it")
        groups = [{**groups[0], "params": list(range(len(names)))}]
    return {"state": {at: of[name] for at, name in enumerate(names) if name in of}, "param_groups": groups}
