"""Choice of the engine for a call: cuDNN if the table lists all features of the call, else our own kernels.

Support of cuDNN 9.19 on compute capability 9.0 is documented in its frontend (``sdpa_support_surface.h`` of 1.32). Each
row names a feature of a call for which cuDNN is not used.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from callboard.backends.cuda.attention.own import room_needed
from callboard.core.layout import Layout
from callboard.core.operand import Operand
from callboard.kernel.attention import Backward, BackwardBias, BackwardFp8, Forward, ForwardFp8, PagedForward
from callboard.kernel.attention.scores import Problem, Scores

__all__ = [
    "FEATURES",
    "FP8",
    "Feature",
    "Missing",
    "Wanted",
    "refuses",
    "refuses_fp8",
    "sinks_after",
    "wanted",
    "why_own",
]

AnyCall = Forward | Backward | BackwardBias | PagedForward
MOST_SHARED = 227 << 10
"""Bytes of shared memory that a block may have (compute capability 9.0)."""
ALIGNMENT = 16
"""Bytes of which steps and addresses must be multiples for cuDNN, which does not check this and otherwise computes
wrong results."""


class Wanted(NamedTuple):
    """A call, as the table asks about it.

    Attributes:
        op: The message, with placeholders.
        problem: Problem of the call.
        left, right: The window, -1 where it hides nothing.
        bottom_right: Positions are counted from the last key, and that makes a difference.
        padded: Sequences have lengths of their own.
    """

    op: Any
    problem: Problem
    left: int
    right: int
    bottom_right: bool
    padded: bool


class Feature(NamedTuple):
    """A row of the table.

    Attributes:
        what: Description for the guide and for messages.
        asked: Returns True if a call has it.
    """

    what: str
    asked: Callable[[Wanted], bool]


def _misaligned(w: Wanted) -> bool:
    names = ("q", "k", "v", "out", "dout", "dq", "dk", "dv", "k_pages", "v_pages")
    given = [x.layout for n in names if isinstance(x := getattr(w.op, n, None), Operand)]
    made = [x for n, x in w.op.infer().items() if n in names]
    return any(_odd(layout) for layout in (*given, *made))


def _odd(layout: Layout) -> bool:
    steps = zip(layout.shape[:-1], layout.strides[:-1], strict=True)
    return any(n > 1 and s * layout.dtype.itemsize % ALIGNMENT for n, s in steps)


def _far(w: Wanted) -> bool:  # cuDNN takes the offsets of packed sequences as integers of 32 bits
    given = (getattr(w.op, n, None) for n in ("q", "k", "v", "dout"))
    return w.problem.ragged and any(
        x.shape[0] * x.layout.strides[0] >= 1 << 31 for x in given if isinstance(x, Operand)
    )


def _scattered(w: Wanted) -> bool:
    given = [x for n in ("lse", "bias", "out", "dq", "dk", "dv") if isinstance(x := getattr(w.op, n, None), Operand)]
    if not w.padded:  # else the part after the lengths is filled first
        given = [x for x in given if x is getattr(w.op, "lse", None) or x is getattr(w.op, "bias", None)]
    return any(not x.layout.contiguous for x in given)


FEATURES: tuple[Feature, ...] = (
    Feature("f32 and f64", lambda w: w.problem.dtype.name not in ("f16", "bf16")),
    Feature(
        "head dims that are not multiples of 8, or beyond 256",
        lambda w: any(d % 8 or d > 256 for d in (w.problem.dim, w.problem.dim_v)),
    ),
    Feature("softcap", lambda w: w.problem.params.softcap != 0),
    Feature("ALiBi with slopes of one's own", lambda w: w.op.alibi_slopes is not None),
    Feature("dropout, whose numbers are named by their place", lambda w: w.problem.params.dropout != 0),
    Feature(
        "a bias with a window counted from the last key, in f32, or repeated along the queries",
        lambda w: (
            _bias(w) is not None
            and (w.bottom_right or _bias(w).dtype is not w.problem.dtype or _bias(w).shape[2] != w.problem.seq_q)
        ),
    ),
    Feature("gradients with a bias", lambda w: _bias(w) is not None and isinstance(w.op, Backward | BackwardBias)),
    Feature(
        "more queries than keys with a window",
        lambda w: w.problem.seq_q > w.problem.seq_k and not w.padded and (w.bottom_right or w.left >= 0),
    ),
    Feature("no queries or no keys", lambda w: 0 in (w.problem.batch, w.problem.seq_q, w.problem.seq_k)),
    Feature("steps that are not multiples of 16 bytes", _misaligned),
    Feature("packed operands of 2**31 numbers and more", _far),
    Feature("log-sum-exps, biases and padded outputs with gaps", _scattered),
)
"""Features computed by our own kernels; cuDNN computes everything else."""


class Missing(NamedTuple):
    """A row of the table of fp8, which no other engine computes.

    Attributes:
        what: Description of the missing feature.
        instead: Recommended alternative.
        asked: Returns True if a call has it.
    """

    what: str
    instead: str
    asked: Callable[[Wanted], bool]


HALVES = "take attention.forward with f16 or bf16"
FP8: tuple[Missing, ...] = (
    Missing(
        "head dims that are no multiples of 16, or beyond 256",
        f"pad them, or {HALVES}",
        lambda w: any(d % 16 or d > 256 for d in (w.problem.dim, w.problem.dim_v)),
    ),
    Missing(
        "gradients of head dims other than 128",
        "take attention.backward with f16 or bf16",
        lambda w: isinstance(w.op, BackwardFp8) and (w.problem.dim, w.problem.dim_v) != (128, 128),
    ),
    Missing(
        "bias, sinks, ALiBi, softcap and dropout",
        HALVES,
        lambda w: (
            any(getattr(w.op, n) is not None for n in ("bias", "sink", "alibi_slopes"))
            or w.problem.params.softcap != 0
            or w.problem.params.dropout != 0
        ),
    ),
    Missing("packed sequences", "pad them (seqlens_q, seqlens_k)", lambda w: w.problem.ragged),
    Missing("single queries", HALVES, lambda w: w.problem.seq_q == 1),
    Missing(
        "causal attention counted from the last key where lengths differ",
        'pass alignment="top_left" where lengths are equal',
        lambda w: w.bottom_right,
    ),
    Missing("windows", f"leave window_size out, or {HALVES}", lambda w: w.left >= 0 or w.right > 0),
    Missing(
        "no queries or no keys",
        "leave the call out",
        lambda w: 0 in (w.problem.batch, w.problem.seq_q, w.problem.seq_k),
    ),
    Missing("steps that are not multiples of 16 bytes", "copy the operand (dev.copy)", _misaligned),
    Missing(
        "log-sum-exps and padded outputs with gaps",
        "leave out and lse to be made",
        _scattered,
    ),
)
"""Features that fp8 attention lacks on compute capability 9.0."""


def _bias(w: Wanted) -> Any:
    return w.op.bias if isinstance(w.op, Scores) else None


def wanted(op: AnyCall | ForwardFp8 | BackwardFp8, problem: Problem) -> Wanted:
    """A call, as the table asks about it."""
    params = problem.params
    padded = any(
        x is not None for x in (op.cu_seqlens_q, getattr(op, "seqlens_q", None), getattr(op, "seqlens_k", None))
    )
    left, right = params.left, params.right
    if not padded:  # a window beyond all keys hides nothing
        shift = problem.seq_k - problem.seq_q if params.bottom_right else 0
        left = -1 if left >= problem.seq_q - 1 + shift else left
        right = -1 if right >= problem.seq_k - 1 - shift else right
    elif params.bottom_right and problem.seq_q == 1 and not problem.ragged:  # query at the last key
        right = -1 if not isinstance(op, Scores) or op.seqlens_q is None else right
    banded = left >= 0 or right >= 0
    bottom = params.bottom_right and banded and (padded or problem.seq_q != problem.seq_k)
    return Wanted(op, problem, left, right, bottom, padded)


def why_own(w: Wanted) -> str | None:
    """The first feature of a call for which cuDNN is passed over; None if it is not."""
    return next((feature.what for feature in FEATURES if feature.asked(w)), None)


def refuses_fp8(op: ForwardFp8 | BackwardFp8) -> str | None:
    """The reason why cuDNN does not support a call in fp8, with a cure."""
    w = wanted(op, op.problem())
    found = next((row for row in FP8 if row.asked(w)), None)
    return None if found is None else f"fp8 has no {found.what.removeprefix('no ')}: {found.instead}"


def refuses(op: AnyCall) -> str | None:
    """The reason why neither engine can compute a call: its heads exceed shared memory, and cuDNN lacks them."""
    problem = op.problem()
    backward = isinstance(op, Backward | BackwardBias)
    room = room_needed(problem.dtype, problem.dim, problem.dim_v, backward=backward)
    most = max(problem.dim, problem.dim_v)
    if most <= 512 and room <= MOST_SHARED:
        return None
    return (
        f"head dims {problem.dim} and {problem.dim_v} of {problem.dtype} take {room} bytes of shared memory; there are "
        f"{MOST_SHARED}, and lanes for 512: all dtypes fit up to a head dim of 256"
    )


def sinks_after(w: Wanted) -> bool:
    """True if a kernel adds the sinks after cuDNN, which takes none in decoding and with packed sequences."""
    is_forward = not isinstance(w.op, Backward | BackwardBias)
    return w.op.sink is not None and is_forward and (w.problem.ragged or w.problem.seq_q == 1)
