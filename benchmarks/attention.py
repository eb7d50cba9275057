"""Cost of attention: through callboard, through NVIDIA's frontend of cuDNN called directly, and in eager torch.

    python benchmarks/attention.py --json attention.json
    python benchmarks/attention.py --quick --device cpu

On CUDA: causal attention of 2 sequences of 8192, 32 heads of 128 in bf16, forward and backward, also with 8 heads of
keys; decoding of 64 sequences of 8192 from pages of 16 (torch: from whole arrays, which is the least that it can cost);
16 packed sequences of 512 to 8192 in f16; fp8, which eager torch has not. A product of queries and keys and one of
probabilities and values count as 2 operations a pair and number, backward as 2.5 times as many; of causal attention
half of the pairs count.
"""

from typing import Any

import ml_dtypes
import numpy as np
from _attention_cudnn import Direct
from _maths import Problem, Run, Subjects, compare

NUMPY: dict[str, Any] = {
    "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16), "f32": np.dtype(np.float32),
    "f8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
}  # fmt: skip
BLOCK, SHOWN = 16, 64
"""Tokens of a page, and tokens of a result that are compared."""
RAGGED = tuple(512 * n for n in (1, 16, 3, 8, 2, 12, 5, 1, 7, 4, 9, 2, 14, 6, 3, 11))


def problems(kind: str, quick: bool) -> list[Problem]:
    if kind == "cpu":
        rows = 128 if quick else 1024
        whole = [whole_problem(way, 1, rows, (8, 8), 64, "f32", 5) for way in ("forward", "backward")]
        return [*whole, decode_problem(4, rows, (8, 2), 64, "f32", 20)]
    rows, found = 1024 if quick else 8192, []
    for heads in ((32, 32), (32, 8)):
        for way in ("forward", "backward"):
            found += beside_both(whole_problem(way, 2, rows, heads, 128, "bf16", 20))
    found += beside_both(decode_problem(64, rows, (32, 8), 128, "bf16", 50))
    found += beside_both(ragged_problem(rows, (32, 32), 128, "f16", 20))
    fp8 = whole_problem("forward", 2, rows, (32, 32), 128, "f8_e4m3", 20)
    return [*found, fp8._replace(bar=0.97, without=("torch",))]


def beside_both(problem: Problem) -> list[Problem]:
    raw = problem._replace(title=f"{problem.title}, beside cuDNN", bar=0.97, without=("torch",))
    return [raw, problem._replace(title=f"{problem.title}, beside torch", bar=1.0, base="torch", without=("raw",))]


def settings_of(way: str, batch: int, rows: int, heads: tuple[int, int], dim: int, dtype: str) -> dict[str, Any]:
    return {
        "way": way,
        "batch": batch,
        "rows": rows,
        "heads": heads[0],
        "kv_heads": heads[1],
        "dim": dim,
        "dtype": dtype,
    }


def whole_problem(way: str, batch: int, rows: int, heads: tuple[int, int], dim: int, dtype: str, count: int) -> Problem:
    work = 2e-12 * batch * heads[0] * rows * rows * dim * (2.5 if way == "backward" else 1)
    title = f"attention {way}, causal, {batch}x{rows}, {heads[0]}:{heads[1]} heads of {dim}, {dtype}"
    return Problem(title, settings_of(way, batch, rows, heads, dim, dtype), count, None, work, "TFLOP/s")


def decode_problem(batch: int, rows: int, heads: tuple[int, int], dim: int, dtype: str, count: int) -> Problem:
    work = 2e-9 * batch * rows * heads[1] * dim * NUMPY[dtype].itemsize
    title = f"decoding of {batch} sequences of {rows} from pages, {heads[0]}:{heads[1]} heads of {dim}, {dtype}"
    return Problem(title, settings_of("decode", batch, rows, heads, dim, dtype), count, None, work, "GB/s")


def ragged_problem(longest: int, heads: tuple[int, int], dim: int, dtype: str, count: int) -> Problem:
    lengths = ragged(longest)
    work = 2e-12 * heads[0] * dim * sum(n * n for n in lengths)
    title = f"attention of {len(lengths)} packed sequences, causal, {sum(lengths)} tokens, {heads[0]} heads, {dtype}"
    settings = settings_of("ragged", len(lengths), longest, heads, dim, dtype)
    return Problem(title, settings, count, None, work, "TFLOP/s")


def ragged(longest: int) -> list[int]:
    return [n * longest // 8192 for n in RAGGED]


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Random numbers, some thousand positions of them again and again: drawing all would take longer than measuring."""
    few = np.random.default_rng(seed).standard_normal(min(1 << 20, int(np.prod(shape))), np.float32)
    return np.resize(few.astype(NUMPY[dtype]), shape)


def operands(way: str, batch: int, rows: int, heads: int, kv_heads: int, dim: int, dtype: str) -> tuple[Any, ...]:
    """Queries, keys and values; of pages, keys and values in them."""
    if way == "ragged":
        shapes: Any = [(sum(ragged(rows)), h, dim) for h in (heads, kv_heads, kv_heads)]
    elif way == "decode":
        shapes = [(batch, 1, heads, dim), *[(batch * rows // BLOCK, BLOCK, kv_heads, dim)] * 2]
    else:
        shapes = [(batch, rows, h, dim) for h in (heads, kv_heads, kv_heads)]
    return tuple(drawn(shape, dtype, seed) for seed, shape in enumerate(shapes))


def tables(batch: int, rows: int) -> Any:
    """The pages of each sequence, in random order."""
    return np.random.default_rng(7).permutation(batch * rows // BLOCK).astype(np.int32).reshape(batch, -1)


def starts(rows: int) -> Any:
    return np.cumsum([0, *ragged(rows)], dtype=np.int32)


async def ours(device: Any, way: str, batch: int, rows: int, **rest: Any) -> Run:
    attention, dtype = device.attention, rest["dtype"]
    q, k, v = map(device.put, operands(way, batch, rows, **rest))
    if way == "decode":
        table, lengths = device.put(tables(batch, rows)), device.put(np.full(batch, rows, np.int32))
        made = attention.paged_forward(q, k, v, table, lengths, causal=True)
        into = {"out": made.out, "lse": made.lse}
        return Run(lambda: attention.paged_forward(q, k, v, table, lengths, causal=True, **into).out, made.out.get)
    options: dict[str, Any] = {"causal": True}
    if way == "ragged":
        at, longest = device.put(starts(rows)), max(ragged(rows))
        options |= {"cu_seqlens_q": at, "cu_seqlens_k": at, "max_seqlen_q": longest, "max_seqlen_k": longest}
    forward = attention.forward_fp8 if dtype == "f8_e4m3" else attention.forward
    made = forward(q, k, v, **options)
    if way == "backward":
        found = attention.backward(q, q, k, v, made.out, made.lse, **options)
        names = {"dq": found.dq, "dk": found.dk, "dv": found.dv}
        step = lambda: attention.backward(q, q, k, v, made.out, made.lse, **options, **names).dq
        return Run(step, found.dq[0, :SHOWN].get)
    shown = made.out[:SHOWN] if way == "ragged" else made.out[0, :SHOWN]
    return Run(lambda: forward(q, k, v, **options, **made._asdict()).out, shown.get)


def torch_run(torch: Any, where: str, settings: dict[str, Any]) -> Run:
    way, heads, kv_heads = settings["way"], settings["heads"], settings["kv_heads"]
    arrays = operands(**settings)
    if way == "decode":
        table = tables(settings["batch"], settings["rows"])
        gathered = (x[table].reshape(settings["batch"], settings["rows"], kv_heads, -1) for x in arrays[1:])
        arrays = (arrays[0], *gathered)
    q, k, v = (torch_array(torch, where, x) for x in arrays)
    last: dict[str, Any] = {}
    if way == "ragged":
        at, longest = torch.from_numpy(starts(settings["rows"])).to(where), max(ragged(settings["rows"]))
        flash = torch.ops.aten._flash_attention_forward
        step: Any = lambda: last.update(out=flash(q, k, v, at, at, longest, longest, 0.0, True, False)[0])
        return Run(step, lambda: last["out"][:SHOWN].float().cpu().numpy())
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    attend = torch.nn.functional.scaled_dot_product_attention
    options = {"is_causal": way != "decode", "enable_gqa": heads != kv_heads}
    if way == "backward":
        q, k, v = (x.requires_grad_() for x in (q, k, v))
        out = attend(q, k, v, **options)
        dout = q.detach()
        step = lambda: last.update(out=torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)[0])
    else:
        step = lambda: last.update(out=attend(q, k, v, **options))

    def result() -> Any:
        shown = last["out"].transpose(1, 2)
        return (shown if way == "decode" else shown[0, :SHOWN]).float().cpu().numpy()

    return Run(step, result)


def torch_array(torch: Any, where: str, array: Any) -> Any:
    if array.dtype == NUMPY["bf16"]:
        return torch.from_numpy(array.view(np.uint16)).to(where).view(torch.bfloat16)
    return torch.from_numpy(array).to(where)


def torch(torch: Any, **settings: Any) -> Run:
    return torch_run(torch, "cuda", settings)


def direct(**settings: Any) -> Run:
    import torch

    return torch_run(torch, "cpu", settings)


def raw(cuda: Any, **settings: Any) -> Run:
    """NVIDIA's frontend of cuDNN."""
    way, rows, dim, dtype = (settings[name] for name in ("way", "rows", "dim", "dtype"))
    longest = {"ragged": max(ragged(rows)), "decode": 1}.get(way, rows)
    there = Direct(cuda, dtype, settings["batch"], settings["heads"], longest, dim)
    arrays, scale = list(operands(**settings)), dim**-0.5
    if way == "ragged":
        run, made = there.packed(arrays, starts(rows), longest, scale)
    else:
        at, shapes = [there.put(x) for x in arrays], [x.shape for x in arrays]
        if way == "decode":
            run, made = there.paged(at, shapes, tables(settings["batch"], rows), rows, scale)
        elif way == "backward":
            run, made = there.backward(at, shapes, scale)
        else:
            run, made, _ = there.forward(at, shapes, attn_scale=scale, use_causal_mask=True)
    shown = arrays[0].shape if way == "decode" else (SHOWN, settings["heads"], dim)
    return Run(run, lambda: cuda.get(made, shown, NUMPY[dtype]))


if __name__ == "__main__":
    compare(__doc__, "attention", problems, Subjects(ours, direct, raw, None, torch))
