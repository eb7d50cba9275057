"""Code that travels: classes of scripts, by value, Structs included."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.device.residents.lab import Add, Probe

import callboard
from callboard.device.protocol.residents.classes import class_named, name_of
from callboard.device.protocol.residents.code import dumps, loads

SOURCE = str(Path(callboard.__file__).parents[1])

CLASSES = """
import dataclasses, enum, sys
from typing import Any, ClassVar, Generic, TypeVar
import msgspec
import numpy as np
import callboard as cb

T = TypeVar("T")
FACTOR = 3

class Plain(msgspec.Struct):
    x: int
    y: list[int] = []
    z: str = "d"
    k: ClassVar[int] = 3
    def total(self): return (self.x + sum(self.y) + self.k) * FACTOR
    def other(self): return Plain(1)

class Base(msgspec.Struct, kw_only=True, weakref=True):
    first: int = 1

class Tagged(Base, frozen=True, kw_only=True, tag="tagged", rename="camel"):
    other_name: "Tagged | None" = None
    items: dict[str, int] = msgspec.field(default_factory=lambda: {"a": FACTOR})
    def __post_init__(self):
        assert type(self) is Tagged and __class__ is Tagged
    @classmethod
    def make(cls): return cls(first=4)
    @property
    def double(self): return self.first * 2
    @staticmethod
    def seven(): return 7

class Box(msgspec.Struct, Generic[T]):
    v: T

class Colour(enum.Enum):
    RED = 1

@dataclasses.dataclass
class Point:
    x: float
    colour: Colour = Colour.RED

class Oops(Exception):
    def __init__(self, what, number):
        super().__init__(what)
        self.number = number

class Ask(cb.Request["Own", Plain], tag="script.ask"):
    n: int
    plain: Plain | None = None

class Own(cb.ResidentActor):
    def __init__(self, start, shape):
        self.start, self.shape = start, shape
    @Ask.handles
    def ask(self, m):
        assert type(m) is Ask and (m.plain is None or type(m.plain) is Plain)
        return Plain(m.n + self.start, z=type(self.shape).__name__)
    def point(self, p: Point) -> Point:
        assert type(p) is Point and p.colour is Colour.RED
        return Point(p.x + 1)
    def tagged(self): return Tagged.make()
    def fail(self): raise Oops("oops", 5)
"""

SCRIPT = (
    CLASSES
    + """
import asyncio

async def main(isolation):
    async with cb.device("cpu", isolation=isolation, standby=None) as dev:
        own = dev.actor_of(cb.Props(Own, 10, Point(2.0)), name="own")
        made = await own.ask(Ask(n=5, plain=Plain(1)))
        assert type(made) is Plain and made.x == 15 and made.z == "Point" and made.total() == 54, made
        point = await own.call(Own.point, Point(1.0))
        assert type(point) is Point and point == Point(2.0) and point.colour is Colour.RED
        tagged = await own.call(Own.tagged)
        assert type(tagged) is Tagged and tagged.double == 8 and tagged.items == {"a": 3}
        try:
            await own.call(Own.fail)
        except Oops as e:
            assert e.number == 5 and e.args == ("oops",)
        else:
            raise AssertionError("no error")
        made = await own.ask(Ask(n=6))
        assert made.x == 16

for isolation in sys.argv[1:]:
    asyncio.run(main(isolation))
print("fine")
"""
)

LOADED = """
import pickle, sys, msgspec
from callboard.device.protocol.residents.code import loads
Plain, Base, Tagged, Box, Ask, Own, Colour, Point = loads(open(sys.argv[1], "rb").read())
assert Plain(1, [2]).total() == 18 and Plain(1).other() == Plain(1) and repr(Plain(2)) == "Plain(x=2, y=[], z='d')"
tagged = Tagged.make()
assert tagged.double == 8 and Tagged.seven() == 7 and isinstance(tagged, Base)
config = Tagged.__struct_config__
assert (config.frozen, config.tag, config.tag_field, config.weakref) == (True, "tagged", "type", True)
wire = msgspec.json.encode(tagged)
assert wire == b'{"type":"tagged","first":4,"otherName":null,"items":{"a":3}}', wire
assert msgspec.json.decode(wire, type=Tagged) == tagged
assert Box(3).v == 3 and msgspec.json.decode(b'{"v":3}', type=Box[int]) == Box(3)
assert msgspec.msgpack.decode(msgspec.msgpack.encode(Ask(n=4, plain=Plain(1))), type=Ask) == Ask(n=4, plain=Plain(1))
assert type(Ask).__mro__[1].__name__ == "MessageMeta" and Ask.__struct_config__.tag == "script.ask"
try:
    Tagged(4)
except TypeError:
    pass
else:
    raise AssertionError("fields that are keyword-only came positional")
print("fine")
"""


def run(script: str, *arguments: str, cwd: Path) -> str:
    (cwd / "script.py").write_text(textwrap.dedent(script))
    done = subprocess.run(
        [sys.executable, "script.py", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([SOURCE, *filter(None, [os.environ.get("PYTHONPATH")])])},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_classes_of_a_script_live_in_its_hosts(tmp_path: Path) -> None:
    assert run(SCRIPT, "process", "thread", cwd=tmp_path) == "fine\n"


@pytest.mark.slow
def test_classes_of_a_script_live_in_the_hosts_of_its_spawned_processes(tmp_path: Path) -> None:
    head, _, tail = SCRIPT.partition("for isolation in")
    inside = textwrap.indent("for isolation in" + tail, "    ")
    spawned = (
        "\nif __name__ == '__main__':\n    import multiprocessing\n"
        "    child = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    child.start()\n    child.join(40)\n    sys.exit(child.exitcode)\n"
    )
    assert run(f"{head}def work():\n{inside}{spawned}", "process", cwd=tmp_path) == "fine\n"


def test_structs_by_value_are_whole(tmp_path: Path) -> None:
    writing = CLASSES + (
        "from callboard.device.protocol.residents.code import dumps, loads\n"
        "names = (Plain, Base, Tagged, Box, Ask, Own, Colour, Point)\n"
        "data = dumps(names)\n"
        "assert loads(dumps(names[:5])) == names[:5] and Tagged(first=2).double == 4\n"
        "open('code', 'wb').write(data)\n"
    )
    run(writing, cwd=tmp_path)
    assert run(LOADED, "code", cwd=tmp_path) == "fine\n"


def test_classes_of_modules_go_by_reference() -> None:
    assert name_of(Probe, with_code=True) == "tests.device.residents.lab:Probe"
    assert class_named("tests.device.residents.lab:Add") is Add
    assert loads(dumps((Probe, Add))) == (Probe, Add)
    assert len(dumps(Probe)) < 200


def test_local_classes_go_by_id_with_their_code() -> None:
    class Local:
        value = 5

    name = name_of(Local, with_code=True)
    assert isinstance(name, list)
    assert len(name[1]) > 100
    assert class_named([name[0], b""]) is Local
    with pytest.raises(ImportError, match="made in the context host itself"):
        class_named(["unknown", b""])
    with pytest.raises(ImportError, match="has no class Nobody"):
        class_named("tests.device.residents.lab:Nobody")
