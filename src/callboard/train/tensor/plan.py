"""Plans: which modules of a model are cut, and how; given by names and patterns, or found."""

import fnmatch
import re
from collections.abc import Mapping
from typing import Any

from callboard.train.kinds import Loss, LossKind

__all__ = ["KINDS", "Plan", "check_plan", "open_columns", "resolved"]

Plan = Mapping[str, str] | str

KINDS = {
    "column": "Linear, cut by its outputs; a 'row' module follows",
    "row": "Linear, cut by its inputs; its outputs are added up",
    "gathered": "Linear, cut by its outputs, which are put together",
    "embedding": "Embedding, cut by its rows",
    "vocabulary": "the last Linear, cut by classes; the loss is computed without putting them together",
    "heads": "MultiheadAttention, or another module with a number of heads and projections",
    "sequence": "normalisation or dropout, which each device computes for its tokens",
    "scatter": "a module behind which each device has its tokens only, up to the last layer",
}
VOCABULARY_LOSSES = LossKind.CrossEntropy, LossKind.WeightedCrossEntropy

HEADS = "num_heads", "n_heads", "n_head", "nhead", "heads", "num_attention_heads"
UP = re.compile(r"fc1|c_fc|up_proj|gate_proj|w1|w3|linear1|wi|dense_h_to_4h")
DOWN = re.compile(r"fc2|c_proj|down_proj|w2|linear2|wo|dense_4h_to_h")
LAST = re.compile(r"(.*\.)?(lm_head|head|output|classifier|embed_out)")


def check_plan(plan: Plan, loss: Loss | None) -> None:
    """Look at everything that does not need the model.

    Raises:
        TypeError, ValueError: A plan that cannot be.
    """
    if plan == "auto":
        return
    if not isinstance(plan, Mapping):
        raise TypeError(f"TensorParallelTrainer: plan is {plan!r:.80}; pass 'auto', or a dict of names and kinds")
    if not plan:
        raise ValueError(
            "TensorParallelTrainer: plan is empty, so every device would have the whole model; name modules"
        )
    for name, kind in plan.items():
        if kind not in KINDS:
            raise ValueError(f"TensorParallelTrainer: plan[{name!r}] is {kind!r}; use one of {', '.join(KINDS)}")
    if "vocabulary" in plan.values() and not isinstance(loss, VOCABULARY_LOSSES):
        raise ValueError(
            f"TensorParallelTrainer: plan has 'vocabulary', and loss is {loss!r:.60}; that needs LossKind.CrossEntropy "
            "or LossKind.WeightedCrossEntropy: use 'gathered' for others"
        )


def resolved(plan: Plan, model: Any, loss: Loss | None) -> dict[str, str]:
    """The kind of each planned module, by its name.

    Raises:
        ValueError: A pattern that fits no module, or two that fit one; nothing is found.
    """
    modules = {name: module for name, module in model.named_modules() if name}
    if isinstance(plan, str):
        found = _found(modules, loss)
        if not found:
            raise ValueError(
                "plan='auto' finds no attention and no pair of linear layers that it knows; name the modules: "
                f"{{'name or pattern': kind}}, where a kind is one of {', '.join(KINDS)}"
            )
        return found
    kinds: dict[str, str] = {}
    for pattern, kind in plan.items():
        names = fnmatch.filter(modules, pattern)
        if not names:
            raise ValueError(f"plan: no module is named {pattern!r}; these are: {', '.join(list(modules)[:40])}")
        for name in names:
            if kinds.setdefault(name, kind) != kind:
                raise ValueError(f"plan: {name!r} is to be {kinds[name]!r}, and {kind!r} by {pattern!r}")
    column = next((name for name, kind in kinds.items() if kind == "column"), None)
    if column is not None and "row" not in kinds.values():
        raise ValueError(f"plan: {open_columns(column)}")
    return kinds


def open_columns(name: str) -> str:
    """What is wrong, and the cure, when no row follows the columns of a module."""
    return (
        f"the output of {name!r} is cut by features, and no 'row' module puts it together; plan it as 'gathered', or "
        "plan the module behind it as 'row'"
    )


def _found(modules: dict[str, Any], loss: Loss | None) -> dict[str, str]:
    """What transformers have: attention, pairs of linear layers, embeddings of tokens, and the last layer."""
    import torch

    kinds: dict[str, str] = {}
    for name, module in modules.items():
        linears = {key: one for key, one in module.named_children() if isinstance(one, torch.nn.Linear)}
        if isinstance(module, torch.nn.MultiheadAttention) or (
            linears and any(isinstance(getattr(module, key, None), int) for key in HEADS)
        ):
            kinds[name] = "heads"
        elif any(map(UP.fullmatch, linears)) and any(map(DOWN.fullmatch, linears)):
            for key in linears:
                kind = "column" if UP.fullmatch(key) else "row" if DOWN.fullmatch(key) else ""
                kinds.update({f"{name}.{key}": kind} if kind else {})
        elif isinstance(module, torch.nn.Embedding):
            kinds[name] = "embedding"
        elif isinstance(module, torch.nn.Linear) and LAST.fullmatch(name):
            kinds[name] = "vocabulary" if isinstance(loss, VOCABULARY_LOSSES) else "gathered"
    return kinds
