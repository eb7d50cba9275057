"""All hooks of users that decide something or give a value: what each is asked for, with a hook of the test's.

A scenario gets the hook, and ends in what its caller sees.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import numpy as np

import callboard as cb
from callboard.actors import Mailbox, Pinned
from callboard.patterns.contract.hooks import hashable
from callboard.serve import RIGHTS, App
from callboard.serve.generation.text import Detokenizer

__all__ = ["ROWS", "Row"]

Hook = Callable[..., Any]
Scenario = Callable[[Hook], Awaitable[Any]]


class Row(NamedTuple):
    """A hook.

    Attributes:
        name: Name in errors.
        scenario: What it is needed for.
        wrong: Values that it must not return.
        where: To tell it from others of its name.
        array: It returns arrays, whose shape stands for them in errors.
    """

    name: str
    scenario: Scenario
    wrong: tuple[Any, ...]
    where: str = ""
    array: bool = False


ROWS: list[Row] = []


def row(name: str, *wrong: Any, where: str = "", array: bool = False) -> Callable[[Scenario], Scenario]:
    def add(scenario: Scenario) -> Scenario:
        ROWS.append(Row(name, scenario, wrong, where, array))
        return scenario

    return add


NO_NUMBERS = (None, "x", -1, float("nan"), np.ones(2))
NO_TRUTHS = (None, "no", 5, np.ones(2, bool))
NO_KEYS = ([1], {})


def same(items: Any) -> list[Any]:
    return list(items)


async def served(server: Any, item: Any = 1, **options: Any) -> Any:
    async with server:
        return await server.submit(item, **options)


# -- batches -----------------------------------------------------------------------------------------------------------


@row("batch function", None, 5, "ab", [1, 2, 3], where="batching")
async def _(hook: Hook) -> Any:
    return await served(cb.DynamicBatchingServer(hook))


@row("cost", *NO_NUMBERS, where="batching")
async def _(hook: Hook) -> Any:
    return await served(cb.DynamicBatchingServer(same, cost=hook))


@row("bucket", *NO_KEYS, where="batching")
async def _(hook: Hook) -> Any:
    return await served(cb.DynamicBatchingServer(same, bucket=hook))


@row("bucket", None, "x", -1, where="joined")
async def _(hook: Hook) -> Any:
    return await served(cb.DynamicBatchingServer(same, bucket=hook, batches=cb.BatchOptions(join_buckets=True)))


@row("pad", None, where="batching")
async def _(hook: Hook) -> Any:
    return await served(cb.DynamicBatchingServer(same, batches=cb.BatchOptions(pad=hook, preferred=[1])))


@row("item_key", 5, where="batching")
async def _(hook: Hook) -> Any:
    return await served(cb.DynamicBatchingServer(same, quarantine=cb.Quarantine(None, item_key=hook)))


@row("batch function", None, [1, 2], where="continuous")
async def _(hook: Hook) -> Any:
    return await served(cb.ContinuousBatchingServer(hook))


@row("cost", *NO_NUMBERS, where="continuous")
async def _(hook: Hook) -> Any:
    return await served(cb.ContinuousBatchingServer(lambda slots: [cb.DONE for _ in slots], cost=hook))


@row("batch function", None, [1, 2], where="sequences")
async def _(hook: Hook) -> Any:
    return await served(cb.SequenceBatchingServer(hook), sequence="a", start=True)


# -- pools, tenants, quarantine ----------------------------------------------------------------------------------------


@row("policy", None, "none of them", 7, where="replicas")
async def _(hook: Hook) -> Any:
    return await served(cb.ModelReplicaPool([lambda x: x], policy=hook))


@row("key", *NO_KEYS, where="replicas")
async def _(hook: Hook) -> Any:
    return await served(cb.ModelReplicaPool([lambda x: x], policy="consistent_hash", key=hook))


@row("make", None, 5, where="replicas")
async def _(hook: Hook) -> Any:
    return await served(cb.ModelReplicaPool(1, make=hook))


@row("cost", *NO_NUMBERS, where="replicas")
async def _(hook: Hook) -> Any:
    return await served(cb.ModelReplicaPool([lambda x: x], cost=hook))


@row("cost", *NO_NUMBERS, where="fair share")
async def _(hook: Hook) -> Any:
    return await served(cb.FairShareScheduler(lambda x: x, cost=hook), tenant="a")


@row("charge", *NO_NUMBERS, where="fair share")
async def _(hook: Hook) -> Any:
    return await served(cb.FairShareScheduler(lambda x: x, charge=hook), tenant="a")


@row("call", None, 5, where="quarantine")
async def _(hook: Hook) -> Any:
    return await cb.Quarantine(None).run("key", hook)


# -- versions, stages, texts -------------------------------------------------------------------------------------------


def version(name: str, **settings: Any) -> cb.ModelVersion:
    return cb.ModelVersion(name, **{"load": lambda: lambda item: item, **settings})


@row("load", None, 5, where="versions")
async def _(hook: Hook) -> Any:
    return await served(cb.ModelHotSwapServer(version("a", load=hook)))


@row("check", *NO_TRUTHS, where="versions")
async def _(hook: Hook) -> Any:
    return await served(cb.ModelHotSwapServer(version("a", golden=[(1, 1)], check=hook)))


@row("key", *NO_KEYS, where="versions")
async def _(hook: Hook) -> Any:
    return await served(cb.ModelHotSwapServer(version("a"), key=hook))


@row("free", *NO_NUMBERS, where="versions")
async def _(hook: Hook) -> Any:
    return await served(cb.ModelHotSwapServer(version("a", memory=100), memory=cb.DeviceMemory(hook)))


async def tried(**canary: Any) -> Any:
    async with cb.ModelHotSwapServer(version("a")) as server:
        trial = cb.Canary(share=1.0, requests=2, **canary)
        swap = asyncio.ensure_future(server.swap(version("b"), canary=trial))
        while not swap.done():
            assert (await server.submit(1)).response == 1  # whatever becomes of the trial
        return await swap


@row("judge", *NO_TRUTHS, where="canary")
async def _(hook: Hook) -> Any:
    return await tried(judge=hook)


@row("agree", *NO_TRUTHS, where="canary")
async def _(hook: Hook) -> Any:
    return await tried(agree=hook, shadow=True)


@row("on_error", None, "nonsense", 5, where="pipeline")
async def _(hook: Hook) -> Any:
    def fail(item: int) -> int:
        raise LookupError(item)

    return [each async for each in cb.PipelineExecutor(fail, on_error=hook).run([1, 2])]


@row("confidence", None, "x", np.ones(2), where="cascade")
async def _(hook: Hook) -> Any:
    stages = [cb.CascadeStage(same, threshold=0.5, confidence=hook), cb.CascadeStage(same, confidence=float)]
    return await served(cb.InferenceCascade(stages))


@row("right", *NO_TRUTHS, where="cascade")
async def _(hook: Hook) -> Any:
    stages = [cb.CascadeStage(same, threshold=0.5, confidence=float), cb.CascadeStage(same, confidence=float)]
    async with cb.InferenceCascade(stages) as cascade:
        return await cascade.calibrate([1, 2], [1, 2], right=hook, max_loss=0.1)


@row("gate", None, 5, np.ones(3), where="experts", array=True)
async def _(hook: Hook) -> Any:
    return await served(cb.MoeRouter(hook, [lambda x: x, lambda x: x]), np.ones((2, 3), np.float32))


@row("expert", None, 5, np.ones(3), where="experts", array=True)
async def _(hook: Hook) -> Any:
    gate = lambda tokens: np.zeros((len(tokens), 2), np.float32)
    return await served(cb.MoeRouter(gate, [hook, hook]), np.ones((2, 3), np.float32))


def next_token(sequences: list[list[int]], rows: list[int]) -> list[Any]:
    return [np.eye(5)[[(text[-1] + 1) % 5] * count] for text, count in zip(sequences, rows, strict=True)]


def decoded(target: Any = None, **hooks: Any) -> Awaitable[Any]:
    decoder = cb.SpeculativeDecoder(cb.Cacheless(next_token) if target is None else target)
    return served(decoder, cb.Decode([1], max_new_tokens=4, **hooks))


@row("forward", np.ones(1), np.ones((1, 3)), np.ones((1, 1, 0)), where="decoder", array=True)
async def _(hook: Hook) -> Any:
    return await decoded(cb.Cacheless(hook))


@row("begin", None, 5, where="decoder")
async def _(hook: Hook) -> Any:
    return await decoded(cb.Model(cb.Cacheless(next_token).forward, hook))


@row("stop_when", *NO_TRUTHS, where="decoder")
async def _(hook: Hook) -> Any:
    return await decoded(stop_when=hook)


@row("adjust", None, "x", np.ones(2), where="decoder")
async def _(hook: Hook) -> Any:
    return await decoded(adjust=hook)


# -- actors ------------------------------------------------------------------------------------------------------------


class Number(cb.Request["Counter", int]):
    n: int = 0


class Broken(cb.Msg["Counter"]):
    pass


class Counter(cb.Actor):
    @Number.handles
    def number(self, message: Number) -> int:
        return message.n

    @Broken.handles
    def broken(self, _: Broken) -> None:
        raise LookupError("broken")


async def after_failure(strategy: Any) -> int:
    async with cb.System(supervision=strategy) as system:
        counter = system.actor_of(cb.Props(Counter))
        counter.tell(Broken())
        return await counter.ask(Number(n=3))


@row("rules", "restart", 5, where="actors")
async def _(hook: Hook) -> Any:
    class Rules(cb.OneForOne):
        pass

    return await after_failure(Rules(hook))


@row("decide", None, cb.Directive.RESTART, 5, where="actors")
async def _(hook: Hook) -> Any:
    class Deciding(cb.OneForOne):
        def decide(self, *arguments: Any, **options: Any) -> Any:
            return hook()

    return await after_failure(Deciding())


@row("directive", None, "restart", where="actors")
async def _(hook: Hook) -> Any:
    class Directing(cb.OneForOne):
        def directive(self, error: BaseException) -> Any:
            return hook()

    return await after_failure(Directing())


@row("supervision", cb.OneForOne, 5, where="actors")
async def _(hook: Hook) -> Any:
    return await after_failure(hook())


@row("supervision", cb.OneForOne, 5, where="parents")
async def _(hook: Hook) -> Any:
    class Parent(Counter):
        def __init__(self) -> None:
            self.supervision = hook()

    async with cb.System() as system:
        return await system.actor_of(cb.Props(Parent)).ask(Number(n=3))


@row("Props", None, 5, Counter, where="actors")
async def _(hook: Hook) -> Any:
    async with cb.System() as system:
        return await system.actor_of(cb.Props(hook)).ask(Number(n=3))


@row("pre_start", 5, where="actors")
async def _(hook: Hook) -> Any:
    class Starting(Counter):
        def pre_start(self) -> Any:
            return hook()

    async with cb.System() as system:
        return await system.actor_of(cb.Props(Starting)).ask(Number(n=3))


@row("priority", None, "x", [1], float("nan"), where="actors")
async def _(hook: Hook) -> Any:
    async with cb.System() as system:
        return await system.actor_of(cb.Props(Counter).with_mailbox(Mailbox(priority=hook))).ask(Number(n=3))


@row("message of pipe", None, 5, where="actors")
async def _(hook: Hook) -> Any:
    async def work() -> int:
        return 1

    class Piping(Counter):
        def pre_start(self) -> None:
            self.pipe(work(), hook)

    async with cb.System(supervision=cb.OneForOne({Exception: cb.Directive.STOP})) as system:
        error = await system.actor_of(cb.Props(Piping)).stopped()
    assert error is not None
    raise error


@row("loop_factory", None, 5, where="actors")
async def _(hook: Hook) -> Any:
    async with cb.System() as system:
        return await system.actor_of(cb.Props(Counter).with_dispatcher(Pinned("own", loop_factory=hook))).ask(Number())


# -- devices -----------------------------------------------------------------------------------------------------------


class Fragile(cb.ResidentActor):
    def fail(self) -> None:
        raise LookupError("broken")

    def number(self, n: int) -> int:
        return n


async def resident(factory: Any) -> Any:
    async with cb.device("cpu") as device:
        actor = device.actor_of(cb.Props(factory))
        if isinstance(factory, type):
            await asyncio.wait([asyncio.ensure_future(awaited(actor.call(Fragile.fail)))])
        return await actor.ready() if not isinstance(factory, type) else await actor.call(Fragile.number, 3)


async def awaited(reply: Any) -> None:
    await asyncio.gather(reply, return_exceptions=True)


@row("supervision", None, "restart", where="residents")
async def _(hook: Hook) -> Any:
    class Directing(cb.OneForOne):
        def directive(self, error: BaseException) -> Any:
            return hook()

    class Supervised(Fragile):
        supervision = Directing()

    return await resident(Supervised)


@row("Props", None, 5, where="residents")
async def _(hook: Hook) -> Any:
    return await resident(hook)


@row("policy", None, 5, where="placement")
async def _(hook: Hook) -> Any:
    async with cb.device("cpu") as device, cb.PlacementActor([device], policy=hook) as placement:
        with placement.pick() as choice:
            return choice


@row("entity", None, 5, where="sharding")
async def _(hook: Hook) -> Any:
    async with cb.device("cpu") as device, cb.PlacementShardingAdapter("region", [device], hook) as region:
        return await region.entity("a").call(Fragile.number, 3)


@row("random", None, "x", -1, 1.0, where="retrying")
async def _(hook: Hook) -> Any:
    await cb.retrying(LookupError, attempts=2, random=hook, delay=1e-6)(failing)()


@row("sleep", None, 5, where="retrying")
async def _(hook: Hook) -> Any:
    await cb.retrying(LookupError, attempts=2, random=lambda: 0.5, sleep=hook)(failing)()


async def failing() -> None:
    raise LookupError("broken")


# -- journals ----------------------------------------------------------------------------------------------------------


async def recorded(method: str, hook: Hook) -> Any:
    journal = cb.MemoryJournal()
    async with cb.ReplayHarness("record", journal) as harness:
        async with cb.System(recorder=harness) as system:
            await system.actor_of(cb.Props(Counter), "counter").ask(Number(n=3))
            await harness.committed()
        setattr(journal, method, hook)
        try:
            return list(harness.entries())
        finally:
            delattr(journal, method)


@row("read of the journal", None, 5, [1], [(1, 2)], [(0, b"")], where="journal")
async def _(hook: Hook) -> Any:
    return await recorded("read", hook)


@row("last of the journal", None, "x", where="journal")
async def _(hook: Hook) -> Any:
    return await recorded("last", hook)


@row("open of the journal", None, 5, where="journal")
async def _(hook: Hook) -> Any:
    journal: Any = cb.MemoryJournal()
    journal.open = hook
    async with cb.ReplayHarness("record", journal):
        pass


@row("redact", ..., where="journal")
async def _(hook: Hook) -> Any:
    async with cb.ReplayHarness("record", redact=hook) as harness, cb.System(recorder=harness) as system:
        return await system.actor_of(cb.Props(Counter), "counter").ask(Number(n=3))


# -- serving -----------------------------------------------------------------------------------------------------------


@row("tenant", *NO_KEYS, where="serve")
async def _(hook: Hook) -> Any:
    return App(tenant=hook).tenant_of({})


@row("rights", None, "infer", 5, {"write"}, [1], where="serve")
async def _(hook: Hook) -> Any:
    return App(rights=hook).check_right(RIGHTS, {})


@row("decode", None, b"x", where="serve")
async def _(hook: Hook) -> Any:
    return Detokenizer(hook).add(1)


@row("hook", *NO_KEYS, where="the check itself")
async def _(hook: Hook) -> Any:
    return hashable("hook", hook())
