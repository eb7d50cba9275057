"""The router against Mixtral's block, with experts of every kind."""

import asyncio
import functools
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moe_lab import LIMIT, Block, Held, by_sign, lab

import callboard as cb
from callboard.patterns.contract.atcall import as_given
from callboard.patterns.moe import server as moe_server
from callboard.patterns.moe.gate import choose

TOLERANCE = 1e-5


@pytest.mark.slow
@given(
    tokens=st.integers(1, 40),
    experts=st.integers(1, 6),
    data=st.data(),
    executor=st.sampled_from(["auto", "loop"]),
)
@settings(max_examples=40, deadline=None)
def test_the_output_is_that_of_mixtrals_block(tokens: int, experts: int, data: st.DataObject, executor: Any) -> None:
    k = data.draw(st.integers(1, experts))
    block = Block(experts, seed=tokens)
    x = block.tokens(tokens)

    async def go() -> cb.MoeResult:
        async with lab(block.gate, block.experts, top_k=k, executor=executor) as router:
            return await router.submit(x)

    found = asyncio.run(go())
    assert found.output.dtype == np.float32
    assert np.abs(found.output - block.dense(x, k)).max() <= TOLERANCE
    assert found.load.sum() == tokens * k


async def test_the_block_of_transformers() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch")
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    config = transformers.MixtralConfig(
        hidden_size=32, intermediate_size=48, num_local_experts=4, num_experts_per_tok=2, router_jitter_noise=0.0
    )
    block = Block(4, 32, 48)
    theirs = MixtralSparseMoeBlock(config).eval()
    state = {"gate.weight": torch.from_numpy(block.gate_weights)}
    if hasattr(theirs.experts, "gate_up_proj"):  # one tensor for all experts
        state["experts.gate_up_proj"] = torch.from_numpy(np.concatenate([block.w1, block.w3], axis=1))
        state["experts.down_proj"] = torch.from_numpy(block.w2)
    else:
        for e in range(4):
            for name in ("w1", "w2", "w3"):
                state[f"experts.{e}.{name}.weight"] = torch.from_numpy(getattr(block, name)[e])
    theirs.load_state_dict(state)
    x = block.tokens(50).reshape(2, 25, 32)
    with torch.no_grad():
        expected = theirs(torch.from_numpy(x))
    expected = expected[0] if isinstance(expected, tuple) else expected
    async with lab(block.gate, block.experts) as router:
        found = await router.submit(x)
    assert np.abs(found.output - expected.numpy()).max() <= TOLERANCE


async def test_tensors_and_modules_of_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    block = Block()
    x = torch.from_numpy(block.tokens(20))
    seen: list[int] = []

    def gate(tokens: np.ndarray) -> Any:
        seen.append(tokens.ctypes.data)
        return torch.from_numpy(tokens) @ torch.from_numpy(block.gate_weights).T

    def expert(number: int) -> Any:
        w1, w2, w3 = (torch.from_numpy(w[number]) for w in (block.w1, block.w2, block.w3))

        def call(rows: np.ndarray) -> Any:
            t = torch.from_numpy(rows)
            return (torch.nn.functional.silu(t @ w1.T) * (t @ w3.T)) @ w2.T

        return call

    async with lab(gate, [expert(n) for n in range(4)]) as router:
        found = await as_given(router.submit)(x)  # otherwise the tensor is copied, once
        assert np.abs(found.output - block.dense(x.numpy(), 2)).max() <= TOLERANCE
        assert seen == [x.data_ptr()]  # converted without a copy
        with pytest.raises(TypeError, match="tokens: Tensor does not convert"):
            await router.submit(torch.ones(1, 8, requires_grad=True))
        with pytest.raises(TypeError, match="tokens: Tensor does not convert"):
            await router.submit(torch.ones(1, 8, dtype=torch.bfloat16))


async def test_experts_of_every_kind() -> None:
    block = Block(5)
    experts = block.experts
    x = block.tokens(30)
    threads: list[str] = []

    async def asynchronous(rows: np.ndarray) -> Any:
        await asyncio.sleep(0)
        return experts[1](rows)

    def plain(rows: np.ndarray) -> Any:
        threads.append(threading.current_thread().name)
        return experts[0](rows)

    async with asyncio.timeout(LIMIT), cb.device("cpu", isolation="thread") as gpu:
        actor = gpu.actor_of(cb.Props(Swiglu, block.w1[2], block.w2[2], block.w3[2]), name="expert")
        down, one = gpu.put(block.w2[3].T.copy()), functools.partial(_activated, block, 3)

        async def chain(rows: np.ndarray) -> cb.GpuRef:
            return gpu.blas.gemm(gpu.put(one(rows)), down)

        of_actor = functools.partial(actor.call, Swiglu.call)
        async with lab(block.gate, [plain, asynchronous, of_actor, chain, experts[4]], top_k=3) as router:
            found = await router.submit(x)
    assert np.abs(found.output - block.dense(x, 3)).max() <= TOLERANCE
    assert threads[0].startswith("callboard-experts")


class Swiglu(cb.ResidentActor):
    def __init__(self, w1: np.ndarray, w2: np.ndarray, w3: np.ndarray) -> None:
        self.block = Block(1)
        self.block.w1, self.block.w2, self.block.w3 = w1[None], w2[None], w3[None]

    def call(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self.block.expert(0)(rows))


def _activated(block: Block, number: int, rows: np.ndarray) -> np.ndarray:
    a = rows @ block.w1[number].T
    return np.asarray(a / (1 + np.exp(-a)) * (rows @ block.w3[number].T), np.float32)


async def test_one_call_per_expert_with_a_contiguous_view_and_none_for_an_empty_one() -> None:
    calls: list[tuple[int, np.ndarray]] = []

    def expert(number: int) -> Any:
        def call(rows: np.ndarray) -> np.ndarray:
            calls.append((number, rows))
            return rows

        return call

    async with lab(lambda x: x[:, :3], [expert(n) for n in range(3)], top_k=1, executor="loop") as router:
        x = np.array([[0.0, 1, 0, 5], [1, 0, 0, 6], [0, 2, 0, 7]])
        found = await router.submit(x)
    assert [(number, rows.tolist()) for number, rows in calls] == [(0, [x[1].tolist()]), (1, x[[0, 2]].tolist())]
    first, second = (rows for _, rows in calls)
    assert first.flags.c_contiguous
    assert second.ctypes.data == first.ctypes.data + first.nbytes  # views of one array
    assert np.array_equal(found.output, x)
    assert found.load.tolist() == [1, 2, 0]


async def test_experts_are_called_at_once_and_summed_in_order() -> None:
    held = Held(3)
    x = np.random.default_rng(1).standard_normal((9, 3)).astype(np.float32)
    outputs = []
    async with lab(lambda x: x, held.experts, top_k=3, executor="loop") as router:
        for order in ((0, 1, 2), (2, 0, 1)):
            future = router.submit_nowait(x)
            await held.called(3)
            for number in order:
                await held.release(number, np.float32(10.0 ** (4 * number)) * x)
            outputs.append((await future).output)
    assert np.array_equal(*outputs)
    weights = choose(x, cb.TopK(3))
    expected = np.zeros_like(x)
    for number in range(3):
        weight = weights.weights[weights.experts == number]  # a row for each token, in order
        expected += np.float32(10.0 ** (4 * number)) * x * weight[:, None]
    assert np.array_equal(outputs[0], expected)


async def test_shared_experts_get_all_tokens() -> None:
    block = Block()
    x = block.tokens(10)
    async with lab(block.gate, block.experts, shared=[np.sin, np.cos]) as router:
        found = await router.submit(x)
    assert np.abs(found.output - block.dense(x, 2) - np.sin(x) - np.cos(x)).max() <= TOLERANCE


@pytest.mark.parametrize("shape", [(8,), (3, 8), (2, 3, 8), (0, 8), (2, 0, 8)])
async def test_tokens_of_any_shape(shape: tuple[int, ...]) -> None:
    block = Block()
    x = np.random.default_rng(1).standard_normal(shape, np.float32)
    async with lab(block.gate, block.experts) as router:
        found = await router.submit(x)
        assert found.output.shape == shape
        assert np.allclose(found.output, block.dense(x.reshape(-1, 8), 2).reshape(shape), atol=TOLERANCE)
        assert router.stats().tokens == x.size // 8


async def test_large_requests_are_prepared_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    block = Block()
    x = block.tokens(20)
    threads: list[str] = []

    def combined(*arguments: Any) -> Any:
        threads.append(threading.current_thread().name)
        return combine(*arguments)

    combine = moe_server.combine
    monkeypatch.setattr(moe_server, "combine", combined)
    async with lab(block.gate, block.experts, executor="loop") as router:
        small = await router.submit(x)
        monkeypatch.setattr(moe_server, "LARGE", 100)
        large = await router.submit(x)
    assert np.array_equal(small.output, large.output)
    assert threads[0] == threading.current_thread().name
    assert threads[1].startswith("callboard-experts")


async def test_jitter_is_seen_by_the_gate_alone_and_repeats_with_the_seed() -> None:
    seen: list[np.ndarray] = []

    def gate(x: np.ndarray) -> np.ndarray:
        seen.append(x)
        return by_sign(x)

    x = np.ones((4, 3))
    for seed in (1, 1, 2):
        async with lab(gate, [lambda r: r, lambda r: -r], top_k=1, jitter=0.1, seed=seed) as router:
            assert np.array_equal((await router.submit(x)).output, x)
            assert np.array_equal((await router.submit(x)).output, x)
    assert np.array_equal(seen[0], seen[2])
    assert np.array_equal(seen[1], seen[3])
    assert not any(np.array_equal(seen[0], other) for other in (x, seen[1], seen[4]))


async def test_capacity_losses_and_figures() -> None:
    x = np.array([[1.0], [2.0], [3.0], [-1.0]])
    for capacity, output, rest in (("drop", [2, 4, 0, -2], (1, 0)), ("reroute", [2, 4, 6, -2], (0, 1))):
        experts = [lambda r: 2 * r] * 2
        async with lab(by_sign, experts, top_k=1, capacity=capacity, capacity_factor=1.0) as router:
            found = await router.submit(x)
            assert found.output[:, 0].tolist() == output
            assert (found.dropped, found.rerouted) == rest
            assert found.choice.experts[:, 0].tolist() == [0, 0, 0, 1]
            p0 = 1 / (1 + np.exp(-2 * x[:, 0]))
            expected = 2 * (0.75 * p0.mean() + 0.25 * (1 - p0).mean())
            assert found.load_balancing_loss == pytest.approx(expected)
            assert found.z_loss == pytest.approx((np.log(2 * np.cosh(x)) ** 2).mean())
            stats = router.stats()
            assert (stats.choices_dropped, stats.choices_rerouted) == rest
            assert stats.load == tuple(found.load.tolist())
            assert stats.tokens == 4
            assert stats.run_time.count == stats.queue_time.count == 1
    assert stats.entropy == pytest.approx(1)


async def test_the_bias_follows_the_load() -> None:
    rule = cb.TopK(1, score="sigmoid")
    async with lab(by_sign, [lambda r: r] * 2, top_k=rule) as router:
        x = np.array([[1.0], [2.0], [0.05]])
        assert (await router.submit(x)).load.tolist() == [3, 0]
        assert router.update_bias(0.05).tolist() == pytest.approx([-0.05, 0.05])
        assert router.update_bias(0.05).tolist() == pytest.approx([-0.05, 0.05])  # no load since
        assert router.top_k.bias.tolist() == pytest.approx([-0.05, 0.05])
        assert (await router.submit(x)).load.tolist() == [2, 1]


async def test_a_call_goes_to_the_replica_with_the_fewest_rows() -> None:
    held, second = Held(1), Held(1)
    async with lab(lambda x: x[:, :1], [[held.experts[0], second.experts[0]]], top_k=1, max_concurrent=3) as router:
        futures = [router.submit_nowait(np.ones((n, 1))) for n in (3, 1, 1)]
        await held.called(1)
        await second.called(2)
        assert [len(rows) for _, rows, _ in held.calls] == [3]
        assert [len(rows) for _, rows, _ in second.calls] == [1, 1]
        await held.release_all()
        await second.release_all()
        assert [(await future).output.tolist() for future in futures] == [[[2.0]] * n for n in (3, 1, 1)]
        last = router.submit_nowait(np.ones((1, 1)))
        await held.called(1)  # no rows are in either of them: the first one
        await held.release_all()
        await last


@pytest.mark.parametrize(
    "options, error, says",
    [
        ({"top_k": 3}, ValueError, "k is 3, but a token has only 2"),
        ({"experts": []}, ValueError, "k is 2, but a token has only 0"),
        ({"experts": [[], abs]}, ValueError, "expert 0 has no callable"),
        ({"experts": [1, abs]}, TypeError, "1 cannot be called"),
        ({"gate": None}, TypeError, "None cannot be called"),
        ({"jitter": 1.0}, ValueError, "jitter"),
        ({"on_expert_error": "ignore"}, ValueError, "on_expert_error"),
        ({"max_concurrent": 0}, ValueError, "max_concurrent"),
        ({"threads": 0}, ValueError, "threads"),
        ({"capacity": "keep"}, ValueError, "keep"),
    ],
)
def test_settings_out_of_range(options: Any, error: type[Exception], says: str) -> None:
    given_ = {"gate": by_sign, "experts": [abs, abs], **options}
    with pytest.raises(error, match=says):
        cb.MoeRouter(given_.pop("gate"), given_.pop("experts"), **given_)
