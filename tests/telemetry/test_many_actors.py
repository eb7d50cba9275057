"""Metrics of a system with many actors: a page of bounded length, whose counters never fall."""

import asyncio

import callboard as cb
from callboard.telemetry import Telemetry
from callboard.telemetry.sampling.others import MOST, Others
from callboard.telemetry.sampling.snapshot import ActorFigures

LIMIT = 60.0


def figures(path: str, handled: int, depth: int = 0, wait: float = 0.0) -> ActorFigures:
    return ActorFigures(path, "A", "running", depth, 0, handled, 0, handled / 2, wait)


def test_few_actors_have_rows_of_their_own() -> None:
    actors = [figures(f"/{n}", n) for n in range(MOST)]
    assert Others("s").rows(actors) == actors


def test_further_actors_share_a_row_whose_counters_never_fall() -> None:
    others = Others("s")
    actors = [figures(f"/{n}", 2, 1, n) for n in range(MOST + 3)]
    first = others.rows(actors)
    assert len(first) == MOST + 1
    assert (first[-1].path, first[-1].depth, first[-1].handled, first[-1].wait) == ("/s/(others)", 3, 6, MOST + 2)
    actors = [*actors[1 : MOST + 2], figures(f"/{MOST + 2}", 5), figures("/new", 1)]  # one of the first has ended
    second = others.rows(actors)
    assert "/new" in {each.path for each in second}  # its place is free: those of the others stay there
    assert (second[-1].handled, second[-1].depth, second[-1].busy) == (9, 2, 4.5)
    third = others.rows(actors[:MOST])  # some have ended, and what they have counted is kept
    assert (third[-1].path, third[-1].handled, third[-1].depth) == ("/s/(others)", 9, 1)
    again = [*actors[: MOST - 1], figures(f"/{MOST}", 1)]  # another actor of the name
    assert others.rows(again)[-1].handled == 10
    assert others.rows([])[-1].handled == 10


def series(telemetry: Telemetry, name: str) -> dict[tuple[str, ...], float]:
    return {labels: value for family, found in telemetry.collect() if family.name == name for labels, value in found}


async def test_the_page_of_a_system_with_many_actors_is_bounded() -> None:
    async with asyncio.timeout(LIMIT), cb.System("app") as system:
        telemetry = cb.observe(system)
        actors = [system.actor_of(cb.Props(cb.Actor)) for _ in range(MOST + 500)]
        depths = series(telemetry, "callboard_actor_mailbox_depth")
        assert len(depths) == MOST + 1
        assert ("/app/(others)",) in depths
        assert series(telemetry, "callboard_actors")["app",] >= len(actors)
        assert len(telemetry.sample().actors) >= len(actors)  # views choose for themselves
