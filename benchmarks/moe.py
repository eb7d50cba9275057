"""Cost of routing: ``MoeRouter``, the same block in plain NumPy and torch, and a message per token.

    OPENBLAS_NUM_THREADS=1 python benchmarks/moe.py --json moe.json
    OPENBLAS_NUM_THREADS=1 python benchmarks/moe.py --quick --device cpu

A block as in Mixtral: a linear gate, 8 experts of SwiGLU, 2 for each token, on the host. The router calls its experts
as plain functions, on threads or on the loop, or sends each of them a message. Plain NumPy sorts the tokens by expert
and calls one expert after the other. "torch" is the loop of transformers' block, "transformers" that block itself, each
where it is installed. Products take one thread each, in all of them.
"""

import argparse
import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from _harness import Bar, arguments, interleave, ratios, table, tell_bars
from _moe_rivals import Block, K, Messages, grouped, per_token, torch_block, transformers_block
from _record import Record

import callboard as cb

TOLERANCE = 1e-5


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=20, help="blocks per round (default 20)")


def main() -> None:
    given = arguments(__doc__, rounds=9, extend=_extend)
    if given.quick:
        given.repeat = min(given.repeat, 3)
    record = Record("moe", given)
    block = Block(given.experts, given.width, 2 * given.width)
    x = np.random.default_rng(2).standard_normal((given.tokens, given.width), np.float32)
    expected = grouped(block, x)
    error: dict[str, float] = {}
    with asyncio.Runner() as runner:

        async def timed(name: str, run: Callable[[np.ndarray], Awaitable[np.ndarray]], repeat: int) -> float:
            error[name] = float(np.abs(await run(x) - expected).max())
            times = []
            for _ in range(repeat):
                start = time.perf_counter()
                await run(x)
                times.append(time.perf_counter() - start)
            return float(np.median(times))

        def plainly(name: str, function: Callable[[np.ndarray], np.ndarray]) -> Callable[[], float]:
            async def run(x: np.ndarray) -> np.ndarray:
                return function(x)

            return lambda: runner.run(timed(name, run, given.repeat))

        def routed(name: str, executor: Any, by_message: bool = False) -> Callable[[], float]:
            async def go() -> float:
                messages = Messages(block.experts)
                asked: list[Any] = [functools.partial(messages.ask, number) for number in range(given.experts)]
                router = cb.MoeRouter(block.gate, asked if by_message else block.experts, top_k=K, executor=executor)
                async with router:

                    async def run(x: np.ndarray) -> np.ndarray:
                        return (await router.submit(x)).output

                    found = await timed(name, run, given.repeat)
                messages.close()
                return found

            return lambda: runner.run(go())

        def by_token() -> float:
            async def go() -> float:
                messages = Messages(block.experts)
                found = await timed("message per token", lambda x: per_token(block, messages, x), given.repeat // 4 + 1)
                messages.close()
                return found

            return runner.run(go())

        subjects = {
            "NumPy": plainly("NumPy", lambda x: grouped(block, x)),
            "router": routed("router", "auto"),
            "router, on the loop": routed("router, on the loop", "loop"),
            "router, by message": routed("router, by message", "loop", by_message=True),
            "message per token": by_token,
        }
        torch = torch_block(block)
        if torch is not None:
            subjects["torch"] = plainly("torch", torch)
        transformers = transformers_block(block)
        if transformers is not None:
            subjects["transformers"] = plainly("transformers", transformers)
        for subject in subjects.values():  # warm
            subject()
        title = f"{given.tokens} tokens, {given.experts} experts, top {K}, width {given.width}"
        found = interleave(subjects, given.rounds, title)
    record[title] = table(title, found, lambda seconds: f"{seconds * 1e3:.2f} ms", "NumPy")
    record["difference"] = error
    assert max(error.values()) <= TOLERANCE, error

    def bar(of: str, to: str, limit: float) -> Bar:
        ratio = ratios(found, to, of)  # of times, so of speeds the other way round
        return Bar(f"speed of {of}, to {to}", ratio and ratio["median"], limit, at_least=True)

    record.done(
        tell_bars(
            [
                bar("router", "NumPy", 0.95),
                bar("router, by message", "NumPy", 0.95),
                bar("router", "torch", 0.95),
                bar("router", "transformers", 0.95),
                bar("router", "message per token", 4),
                bar("router, by message", "message per token", 4),
            ]
        )
    )


if __name__ == "__main__":
    main()
