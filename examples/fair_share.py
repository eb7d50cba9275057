"""Tenants share one model by weight, counted in tokens: a flood delays neither a quiet tenant nor one that pays."""

import asyncio
import sys

import numpy as np

import callboard as cb

WIDTH = 64


async def main(name: str) -> None:
    async with cb.device(name) as gpu:
        weights = gpu.put(np.eye(WIDTH, dtype="f4"))
        order: list[str] = []

        async def embed(text: str) -> np.ndarray:
            order.append(text[0])
            rows = np.full((len(text), WIDTH), 1 / len(text), "f4")  # a token for each character
            vector: np.ndarray = (await gpu.blas.gemm(gpu.put(rows), weights).get()).sum(0)
            return vector

        tenants: dict[object, cb.Tenant | float] = {
            "flood": cb.Tenant(weight=1, max_queue=200),
            "paid": cb.Tenant(weight=3, max_queue=200),
            ("acme", "ann"): 1,  # ann and bob share what the group acme gets
            ("acme", "bob"): cb.Tenant(max_in_flight=1, hard=True),
        }
        async with cb.FairShareScheduler[str, np.ndarray](
            embed, tenants=tenants, max_in_flight=2, cost=len
        ) as scheduler:
            work = [scheduler.submit("f" * 40, tenant="flood") for _ in range(100)]  # 4,000 tokens
            work += [scheduler.submit("p" * 10, tenant="paid") for _ in range(200)]  # 2,000 tokens
            work += [scheduler.submit("b" * 20, tenant=("acme", "bob")) for _ in range(5)]
            everything = asyncio.gather(*work)
            quiet = await scheduler.submit("q", tenant="new")  # has the settings of ``default``
            assert np.allclose(quiet, 1)
            assert len(order) < 20  # ahead of some 300 requests that came before it
            await everything

            served = {"f": 40 * order[:120].count("f"), "p": 10 * order[:120].count("p")}
            assert 2 < served["p"] / served["f"] < 4  # while both waited: 1 to 3, in tokens

            try:
                await scheduler.submit("x" * 10, tenant="new", timeout=-1)
            except cb.DeadlineExceeded as e:
                print(f"refused in stage {e.stage!r}")
            stats = scheduler.stats()
            print(f"{stats.completed} requests, {stats.served:.0f} tokens")
            print(f"while both waited, flood and paid had 1 : {served['p'] / served['f']:.1f} tokens")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
