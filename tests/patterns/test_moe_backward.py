"""Gradients of the router against finite differences and against autograd of Mixtral's block."""

import asyncio
import functools
from typing import Any

import numpy as np
import pytest
from moe_lab import lab

import callboard as cb

WIDTH, OUT, EXPERTS = 3, 2, 4


class Net:
    """A linear gate and nonlinear experts in f64, whose gradients are written out."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.gate_weights = rng.standard_normal((EXPERTS, WIDTH))
        self.weights = rng.standard_normal((EXPERTS + 1, WIDTH, OUT))
        self.steps = np.zeros_like(self.weights)
        self.gate_step = np.zeros_like(self.gate_weights)

    def gate(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x @ self.gate_weights.T)

    def of_gate(self, x: np.ndarray, grad: np.ndarray) -> np.ndarray:
        self.gate_step += grad.T @ x
        return np.asarray(grad @ self.gate_weights)

    def expert(self, number: int, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.tanh(x @ self.weights[number]))

    def of_expert(self, number: int, x: np.ndarray, grad: np.ndarray) -> np.ndarray:
        inner = grad * (1 - np.tanh(x @ self.weights[number]) ** 2)
        self.steps[number] += x.T @ inner
        return np.asarray(inner @ self.weights[number].T)

    def router(self, *, shared: bool = False, **options: Any) -> Any:
        ways = cb.MoeBackward(
            self.of_gate,
            [functools.partial(self.of_expert, n) for n in range(EXPERTS)],
            [functools.partial(self.of_expert, EXPERTS)] if shared else [],
        )
        experts = [functools.partial(self.expert, n) for n in range(EXPERTS)]
        more = [functools.partial(self.expert, EXPERTS)] if shared else []
        return lab(self.gate, experts, shared=more, backward=ways, executor="loop", **options)


def differences(loss: Any, x: np.ndarray) -> np.ndarray:
    found = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        here, step = x[at], 1e-6
        x[at] = here + step
        above = loss()
        x[at] = here - step
        found[at] = (above - loss()) / (2 * step)
        x[at] = here
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 2},
        {"top_k": 1},
        {"top_k": cb.TopK(2, normalize=False, scale=1.5)},
        {"top_k": cb.TopK(2, score="topk_softmax", scale=0.5)},
        {"top_k": cb.TopK(3, score="sigmoid", bias=[0.1, 0.0, -0.1, 0.0])},
        {"top_k": cb.TopK(2, score="sigmoid", normalize=False, groups=2, top_groups=1)},
        {"top_k": 2, "capacity": "drop", "capacity_factor": 0.6},
        {"top_k": 2, "capacity": "reroute", "capacity_factor": 0.7},
        {"top_k": 2, "jitter": 0.2, "seed": 4},
        {"top_k": 2, "shared": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("losses", [{}, {"load_balancing": 0.3, "z": 0.2}], ids=["plain", "losses"])
def test_gradients_are_those_of_finite_differences(options: dict[str, Any], losses: dict[str, float]) -> None:
    net = Net(2)
    x = np.random.default_rng(5).standard_normal((7, WIDTH))
    towards = np.random.default_rng(6).standard_normal((7, OUT))

    async def run(back: bool) -> Any:
        async with net.router(**options) as router:
            result = await router.submit(x.copy())
            value = float((result.output * towards).sum())
            value += losses.get("load_balancing", 0) * result.load_balancing_loss + losses.get("z", 0) * result.z_loss
            return await router.backward(result, towards, **losses) if back else value

    def loss() -> float:
        return float(asyncio.run(run(back=False)))

    grads = asyncio.run(run(back=True))
    np.testing.assert_allclose(grads.tokens, differences(loss, x), atol=1e-6)
    np.testing.assert_allclose(net.gate_step, differences(loss, net.gate_weights), atol=1e-6)
    np.testing.assert_allclose(net.steps[1], differences(loss, net.weights[1]), atol=1e-6)
    if options.get("shared"):
        np.testing.assert_allclose(net.steps[-1], differences(loss, net.weights[-1]), atol=1e-6)


async def test_a_batch_of_more_axes_and_tokens_without_experts() -> None:
    net = Net()
    async with net.router(top_k=1, capacity="drop", capacity_factor=0.01) as router:
        x = np.random.default_rng(1).standard_normal((2, 5, WIDTH))
        result = await router.submit(x)
        assert result.dropped > 0
        grads = await router.backward(result, np.ones_like(result.output))
        assert grads.tokens.shape == x.shape
        assert grads.logits.shape == (10, EXPERTS)
        kept = np.abs(grads.tokens).reshape(10, -1).sum(axis=1) > 0
        assert kept.sum() == 10 - result.dropped


async def test_what_cannot_be_differentiated_says_so() -> None:
    net = Net()
    x = np.ones((3, WIDTH))

    def broken(rows: np.ndarray) -> Any:
        raise ValueError("no")

    async with lab(net.gate, [functools.partial(net.expert, n) for n in range(EXPERTS)], top_k=1) as router:
        with pytest.raises(ValueError, match="give the router backward="):
            await router.backward(await router.submit(x), np.ones((3, OUT)))
    ways = cb.MoeBackward(net.of_gate, [functools.partial(net.of_expert, n) for n in range(2)])
    with pytest.raises(ValueError, match="backward is for 2 experts and 0 shared ones, and there are 3 and 0"):
        cb.MoeRouter(net.gate, [broken] * 3, backward=ways)
    experts = [functools.partial(net.expert, 0), broken]
    gates = {"gate": lambda tokens: np.zeros((len(tokens), 2)), "experts": experts}
    async with lab(**gates, top_k=2, on_expert_error="renormalise", backward=ways) as router:
        with pytest.raises(ValueError, match=r"experts \\(1,\\) had failed".replace("\\\\", "\\")):
            await router.backward(await router.submit(x), np.ones((3, OUT)))
    async with net.router(top_k=1) as router:
        result = await router.submit(x)
        with pytest.raises(ValueError, match=r"the gradient is \[3, 5\], and the output \[3, 2\]"):
            await router.backward(result, np.ones((3, 5)))
    with pytest.raises(cb.ServerStopped):
        await router.backward(result, np.ones((3, OUT)))


async def test_an_error_of_a_backward_call_names_its_expert() -> None:
    net = Net()

    def broken(rows: np.ndarray, grad: np.ndarray) -> Any:
        raise ArithmeticError("overflow")

    def short(rows: np.ndarray, grad: np.ndarray) -> Any:
        return grad[:-1]

    for way, error, note in (
        (broken, ArithmeticError, "raised by backward of expert 0"),
        (short, cb.BadExpertResult, "backward of expert 0 was given 3 rows and returned [2, 2]"),
    ):
        ways = cb.MoeBackward(net.of_gate, [way])
        experts = [functools.partial(net.expert, 0)]
        async with lab(lambda tokens: np.zeros((len(tokens), 1)), experts, top_k=1, backward=ways) as router:
            with pytest.raises(error) as caught:
                await router.backward(await router.submit(np.ones((3, WIDTH))), np.ones((3, OUT)))
            assert note in [*getattr(caught.value, "__notes__", ()), str(caught.value)]


@pytest.mark.slow
async def test_gradients_of_mixtrals_block_by_autograd() -> None:
    torch = pytest.importorskip("torch")
    net = Net(8)
    x = np.random.default_rng(5).standard_normal((9, WIDTH))
    given = torch.tensor(x, requires_grad=True)
    gate_weights = torch.tensor(net.gate_weights, requires_grad=True)
    weights = torch.tensor(net.weights, requires_grad=True)
    p = torch.softmax(given @ gate_weights.T, dim=1)
    best, chosen = torch.topk(p, 2, dim=1)
    best = best / best.sum(dim=1, keepdim=True)
    outputs = torch.tanh(torch.einsum("tw,ewo->teo", given, weights[:EXPERTS]))
    output = (best[:, :, None] * torch.gather(outputs, 1, chosen[:, :, None].expand(-1, -1, OUT))).sum(dim=1)
    towards = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).reshape(output.shape)
    output.backward(towards)
    async with net.router(top_k=2) as router:
        result = await router.submit(x)
        np.testing.assert_allclose(result.output, output.detach().numpy(), atol=1e-12)
        grads = await router.backward(result, towards.numpy())
    np.testing.assert_allclose(grads.tokens, given.grad.numpy(), atol=1e-12)
    np.testing.assert_allclose(net.gate_step, gate_weights.grad.numpy(), atol=1e-12)
    np.testing.assert_allclose(net.steps[:EXPERTS], weights.grad.numpy()[:EXPERTS], atol=1e-12)
