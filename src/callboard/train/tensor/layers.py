"""The modules of a model, cut by a plan: each keeps a part of its weights, and gets a forward pass of its own."""

from collections.abc import Callable
from typing import Any

from callboard.train.tensor.attention import cut_attention
from callboard.train.tensor.cuts import Cut, even
from callboard.train.tensor.cutting import Cutting
from callboard.train.tensor.flow import Flow

__all__ = ["cut_model", "cut_row"]


def cut_model(model: Any, kinds: dict[str, str], flow: Flow) -> dict[str, Cut]:
    """Cut a model, in place.

    Args:
        model: A ``torch.nn.Module``.
        kinds: The kind of each planned module, by its name.
        flow: What the forward passes share.

    Returns:
        The cuts, by the names of the model's ``state_dict``.

    Raises:
        TypeError, ValueError: A module that cannot be cut so; the text names it.
    """
    modules = dict(model.named_modules())
    cutting = Cutting(model, flow.exchange.rank, flow.exchange.size)
    for name, kind in kinds.items():
        _BY_KIND[kind](name, modules[name], flow, cutting)
    _call_all_modules(model)
    return cutting.finished()


def _call_all_modules(model: Any) -> None:
    """Have torch's transformer layers call their modules in evaluation, too.

    They compute with the weights of their modules themselves otherwise ("fast path"), as if these were whole.
    """
    for module in model.modules():
        for name, slow in (("activation_relu_or_gelu", 0), ("use_nested_tensor", False)):
            if hasattr(module, name):
                setattr(module, name, slow)


def _column(name: str, module: Any, flow: Flow, cutting: Cutting) -> None:
    from torch.nn import functional

    cutting.check_linear(name, module, "column")
    width = module.out_features
    _cut_outputs(name, module, cutting)

    def forward(x: Any) -> Any:
        y = functional.linear(flow.whole(x, name), module.weight, module.bias)
        flow.open_features(name, width)
        return y

    module.forward = forward


def _gathered(name: str, module: Any, flow: Flow, cutting: Cutting) -> None:
    from torch.nn import functional

    cutting.check_linear(name, module, "gathered")
    width = module.out_features
    _cut_outputs(name, module, cutting)

    def forward(x: Any) -> Any:
        y = functional.linear(flow.whole(x, name), module.weight, module.bias)
        return flow.joined(y, -1, width)

    module.forward = forward


def _vocabulary(name: str, module: Any, flow: Flow, cutting: Cutting) -> None:
    _column(name, module, flow, cutting)
    flow.classes, flow.vocabulary = even(0, module.out_features, cutting.size), name


def _cut_outputs(name: str, module: Any, cutting: Cutting) -> None:
    cut = even(0, module.out_features, cutting.size)
    cutting.cut(f"{name}.weight", cut)
    if module.bias is not None:
        cutting.cut(f"{name}.bias", cut)


def _row(name: str, module: Any, flow: Flow, cutting: Cutting) -> None:
    cutting.check_linear(name, module, "row")
    cut_row(name, module, flow, cutting, even(1, module.in_features, cutting.size))


def cut_row(name: str, module: Any, flow: Flow, cutting: Cutting, cut: Cut) -> None:
    """Cut a linear layer by its inputs."""
    from torch.nn import functional

    width = module.in_features
    cutting.cut(f"{name}.weight", cut)

    def forward(x: Any) -> Any:
        if flow.features is None:
            if x.shape[-1] != width:
                raise ValueError(f"{name!r} gets {x.shape[-1]} features, and has {width}")
            x = flow.own(x, x.ndim - 1)
        elif flow.features[1] != width:
            other, wide = flow.features
            raise ValueError(
                f"{name!r} is a 'row' of {width} features, and the 'column' {other!r} in front of it gives {wide}; the "
                "two are cut at the same places only if these are equal (split a layer that is two in one)"
            )
        return flow.together(functional.linear(x, module.weight), module.bias, name)

    module.forward = forward


def _embedding(name: str, module: Any, flow: Flow, cutting: Cutting) -> None:
    import torch
    from torch.nn import functional

    if not isinstance(module, torch.nn.Embedding):
        raise TypeError(f"plan: {name!r} is a {type(module).__name__}; 'embedding' is for torch.nn.Embedding")
    if module.max_norm is not None or module.scale_grad_by_freq:
        raise ValueError(f"plan: {name!r} has max_norm or scale_grad_by_freq, which need the whole embedding")
    cut = even(0, module.num_embeddings, cutting.size)
    cutting.cut(f"{name}.weight", cut)
    ((start, stop),) = cut.pieces[cutting.rank]
    padding = module.padding_idx
    padding = padding - start if padding is not None and start <= padding < stop else None
    count = module.num_embeddings

    def forward(ids: Any) -> Any:
        if bool(((ids < 0) | (ids >= count)).any()):
            raise IndexError(f"{name!r} has {count} rows, and gets ids from {int(ids.min())} to {int(ids.max())}")
        here = (ids >= start) & (ids < stop)
        y = functional.embedding(torch.where(here, ids - start, 0), module.weight, padding)
        return flow.sum(y * here.unsqueeze(-1))

    _set_forward(module, forward)


def _set_forward(module: Any, forward: Callable[..., Any]) -> None:
    module.forward = forward


def _sequence(name: str, module: Any, flow: Flow, cutting: Cutting) -> None:
    kind = type(module).__name__
    if not (kind.endswith(("LayerNorm", "RMSNorm")) or "Dropout" in kind):
        raise TypeError(f"plan: {name!r} is a {kind}; 'sequence' is for LayerNorm, RMSNorm and Dropout")
    if len(getattr(module, "normalized_shape", (1,))) != 1:
        raise ValueError(
            f"plan: {name!r} normalises over {module.normalized_shape}; 'sequence' needs the last axis only"
        )
    before = module.forward
    module.forward = lambda x: flow.of_tokens(x, name, module, before)


def _scatter(name: str, module: Any, flow: Flow, cutting: Cutting) -> None:
    before = module.forward
    module.forward = lambda *args, **kwargs: flow.scatter(before(*args, **kwargs), name)


def _heads(name: str, module: Any, flow: Flow, cutting: Cutting) -> None:
    cut_attention(name, module, flow, cutting, cut_row)


_BY_KIND: dict[str, Callable[[str, Any, Flow, Cutting], None]] = {
    "column": _column,
    "row": _row,
    "gathered": _gathered,
    "embedding": _embedding,
    "vocabulary": _vocabulary,
    "heads": _heads,
    "sequence": _sequence,
    "scatter": _scatter,
}
