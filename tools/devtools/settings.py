"""``docs/simulation-settings.md``: every field of the settings of simulations, from their types and docstrings."""

import argparse
import inspect
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

import callboard as cb
from callboard.realtime.base.fields import Limits, Vector, hints_of, limits_of

__all__ = ["ACTORS", "GROUPS", "page", "sections"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulation-settings.md"
GROUPS: dict[str, tuple[type[Any], ...]] = {
    "Particles": (cb.ParticleConfig, cb.Contact, cb.Emitter),
    "Forces on particles": (cb.Force, cb.Spring, cb.Attractor, cb.Vortex, cb.Wind),
    "Obstacles": (cb.Plane, cb.Ball, cb.Bowl, cb.DistanceField),
    "Cloth": (cb.ClothConfig,),
    "Fluids": (cb.FluidConfig, cb.FluidSource),
    "Passes and effects": (cb.AnalysisPass, cb.Effect),
}
ACTORS: tuple[type[Any], ...] = (
    cb.ParticleSystemActor,
    cb.ClothSimulationActor,
    cb.FluidSimulationActor,
    cb.ImageFilterPipeline,
    cb.VideoEffectsGraph,
    cb.MultiPassAnalysisActor,
    cb.ReductionAnalysisActor,
    cb.SpatialIndexActor,
    cb.GpuHashMapActor,
    cb.GpuSparseStructureActor,
)
HEAD = """# Settings of simulations

All fields of the configurations of [simulations](guides/realtime.md), and all arguments of their actors. This page is
generated from types and docstrings by `scripts/dev generate settings`; a test checks that it is up to date.

An object checks itself when it is made, and `update_config` before anything changes: a `TypeError` is about a type, a
`ValueError` about a value or its limits, a `ShapeError` (a `ValueError`, too) about a number of items. Each names the
field, its value and what it may be. Where there is no default, the field must be given. Fields are given by name.
"""


def sections(docstring: str, title: str) -> dict[str, str]:
    """What a docstring says about each name of a section, as Markdown."""
    found = re.search(rf"^{title}:\n((?:[ ]{{4}}.*\n|\n)+)", inspect.cleandoc(docstring) + "\n", re.MULTILINE)
    told: dict[str, str] = {}
    for names, text in re.findall(r"^    ([\w*, ]+): (.*(?:\n {5,}.*)*)", found[1] if found else "", re.MULTILINE):
        for name in names.split(", "):
            told[name] = marked(text)
    return told


def marked(text: str) -> str:
    """A part of a docstring as a line of Markdown."""
    text = re.sub(r":\w+:`[.~!]?([^`<]*?)(?: <[^`]*>)?`", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`")


def shown(hint: Any) -> str:
    """A type in words."""
    kind, _ = limits_of(hint)
    origin, inner = get_origin(kind), get_args(kind)
    if kind == Vector:
        return "3 numbers"
    if origin in (Union, UnionType):
        return " or ".join(shown(one) for one in inner)
    if origin is Literal:
        return ", ".join(f"`{one!r}`" for one in inner)
    if origin is tuple and inner[-1] is Ellipsis:
        return f"tuple of {shown(inner[0])}"
    if origin is tuple:
        same = len(set(inner)) == 1
        return f"{len(inner)} times {shown(inner[0])}" if same else ", ".join(map(shown, inner))
    if origin is dict:
        return f"{shown(inner[1])} by name"
    words = {float: "number", int: "int", NoneType: "`None`", str: "str", bool: "bool", bytes: "bytes"}
    return words.get(kind) or ("function" if callable(origin) else f"`{getattr(kind, '__name__', kind)}`")


def limits_in(hint: Any) -> Limits:
    """The limits of a hint, or of what is beside None in it."""
    kind, limits = limits_of(hint)
    inner = get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
    return next((limits_of(one)[1] for one in inner if limits_of(one)[1] != Limits()), limits)


def default_of(field: Any) -> str:
    """The default of a field."""
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{field.default_factory()!r}`"
    return "" if field.default is msgspec.NODEFAULT else _value(field.default)


def _value(value: Any) -> str:
    if isinstance(value, float) and len(repr(value)) > 12:
        return f"`1 / {round(1 / value)}`"
    return "infinite" if value == math.inf else f"`{value!r}`"


def _settings(kind: Any) -> Iterator[str]:
    told = sections(kind.__doc__ or "", "Attributes")
    about = re.split(r"\n\s*\n(?= *(?:Attributes|Raises|::))", inspect.cleandoc(kind.__doc__ or ""))[0]
    yield from (f"### {kind.__name__}", "", "\n\n".join(marked(one) for one in about.split("\n\n")), "")
    yield from ("| field | type | default | unit | limits | what it is |", "|---|---|---|---|---|---|")
    for field in msgspec.structs.fields(kind):
        hint = hints_of(kind)[field.name]
        limits = limits_in(hint)
        allowed = "≥ 1, " * (limits_of(hint)[0] is int and limits.least == -math.inf) + str(limits)
        cells = shown(hint), default_of(field), limits.unit, allowed.removesuffix(", "), told[field.name]
        yield f"| `{field.name}` | " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""
    raised = sections(kind.__doc__ or "", "Raises")
    for why in dict.fromkeys(raised.values()):
        yield from (f"{', '.join(f'`{error}`' for error, one in raised.items() if one == why)}: {why}", "")


def _arguments(kind: type[Any]) -> Iterator[str]:
    told = sections(kind.__doc__ or "", "Args")
    yield from (f"### {kind.__name__}", "", "| argument | default | what it is |", "|---|---|---|")
    for name, one in inspect.signature(kind).parameters.items():
        default = "" if one.default is inspect.Parameter.empty else _value(one.default)
        yield f"| `{name}` | {default} | " + told[name].replace("|", "\\|") + " |"
    yield ""


def page() -> str:
    """The page. A field or argument that its docstring does not describe is a KeyError."""
    lines = [HEAD]
    for title, kinds in GROUPS.items():
        lines += [f"## {title}", "", *(line for kind in kinds for line in _settings(kind))]
    lines += ["## Arguments of the actors", "", *(line for kind in ACTORS for line in _arguments(kind))]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write the page, or say whether it is up to date."""
    parser = argparse.ArgumentParser("python -m devtools.settings", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write it")
    if parser.parse_args().write:
        PAGE.write_text(page(), "utf-8")
        return 0
    return int(PAGE.read_text("utf-8") != page())


if __name__ == "__main__":
    sys.exit(main())
