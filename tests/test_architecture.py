"""The rules of the house that a program can check: layers, vendor imports, sizes, names, coverage by tests.

Each rule is a function from a source tree to the list of what breaks it, read with ``ast`` and never imported. The
rules run on this repository, and each also on small bad trees, which it must refuse, and on a good one.
"""

import ast
import gc
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Who may import whom. A package may always import itself.
LAYERS: dict[str, set[str]] = {
    "events": set(),
    "actors": {"events"},
    "core": {"actors", "events"},
    "kernel": {"actors", "core"},
    "arrays": {"actors", "core", "events", "kernel"},
    "numpylike": {"actors", "core", "kernel", "arrays"},
    "scipylike": {"actors", "core", "arrays", "numpylike"},
    "device": {"actors", "core", "events", "kernel", "arrays", "numpylike", "scipylike"},
    "multi_device": {"actors", "core", "events", "kernel", "device"},
    "telemetry": {"actors", "core", "events", "kernel", "device"},  # samples the state of lower layers
    "testing": {"actors", "core", "kernel", "device", "root"},  # for users; the library does not import it
    "backends": {"core", "kernel"},
}
_BELOW_BLUEPRINTS = set("actors core events kernel arrays numpylike scipylike device multi_device telemetry".split())  # noqa: SIM905
LAYERS |= {name: set(_BELOW_BLUEPRINTS) for name in ("patterns", "train", "agents", "realtime")}
LAYERS["agents"] |= {"patterns"}  # the stages of a pipeline are servers
LAYERS["serve"] = _BELOW_BLUEPRINTS | {"patterns", "train", "agents", "realtime", "root"}
LAYERS["cli"] = LAYERS["serve"] | {"serve"}
# Modules directly in callboard/: the public face. Backends are found by entry point, so even this imports none.
LAYERS["root"] = LAYERS["cli"] - {"root", "serve"}

# Within device/: the application's side and the host's meet in the protocol; supervision starts and replaces hosts. An
# op that a resident actor calls inside the host has both sides at once.
SIDES: dict[str, set[str]] = {
    "protocol": {"inside"},  # the type of HostContext.device
    "strategies": {"protocol"},  # a user's object is sent like a resident actor's class
    "host": {"protocol", "inside", "strategies"},
    "inside": {"protocol", "host", "client", "strategies"},
    "client": {"protocol", "supervision"},
    "supervision": {"protocol", "client", "host"},
}

# (file or folder under src/callboard, layer): why it may import a layer that the table above denies it.
LAYER_EXCEPTIONS: dict[tuple[str, str], str] = {
    ("train/opening.py", "root"): "a trainer opens the devices that it is given by name, in a system of its own",
    ("__main__.py", "cli"): "`python -m callboard` is the command line",
    ("device/client/api.py", "telemetry"): "`device.profile()` imports what measures when it is called",
    ("multi_device/replay/driver.py", "root"): "a replay gives `build` a system that opens devices",
    ("core/ref/operators.py", "arrays"): "the type of `ref.__array_namespace__()`, which the device brings at run time",
}

VENDORS = "cuda cudnn cupti cupy cupyx nccl nvmath nvtx opentelemetry pynvml ray tensorrt torch triton warp".split()  # noqa: SIM905
OTLP = {"opentelemetry"}, "the SDK of an exporter, which is an extra"
# File under src/callboard: (packages that it may import inside functions, why).
TRAIN = ROOT / "src" / "callboard" / "train"
TRAINS = {"torch"}, "the engine of the trainers, which are an extra; their models run in the context hosts"
LAZY_VENDOR_IMPORTS: dict[str, tuple[set[str], str]] = {
    **{f"telemetry/export/otel/{name}.py": OTLP for name in ("collector", "ids", "metrics", "traces")},
    "cli/demo/torch_pca.py": ({"torch"}, "`demo --versus torch` is that job in plain torch, in a process of its own"),
    "multi_device/machines/rayengine.py": ({"ray"}, "a cluster's engine, which is an extra"),
    **{f"train/{path.relative_to(TRAIN)}": TRAINS for path in sorted(TRAIN.rglob("*.py"))},
    "device/host/profiling/activity.py": ({"cupti"}, "a profiler, an extra; loaded in the host while it is on"),
    "device/host/profiling/ranges.py": ({"nvtx"}, "marks for a profiler, an extra; loaded in the host by request"),
    "telemetry/nvidia/reading.py": ({"pynvml"}, "figures of GPUs, an extra; in the application, without a context"),
    "serve/bundled/minilm_torch.py": ({"torch"}, "a resident actor's model, which runs in the context host"),
}

# Public modules of kernel/ that are not compute libraries: why they need no backend module of their name.
NOT_LIBRARIES: dict[str, str] = {
    "api": "the base of the libraries' methods, which are behind dev.<library>",
    "checks": "the error of an operand that does not fit, which every library raises",
    "exports": "what the libraries' packages export",
    "methods": "builds the libraries' methods from their messages",
    "conditional": "what of a recording runs: every AccelDevice says whether it can have the device decide",
    "recording": "which recording takes the ops of the calling task; generators of random numbers ask, too",
    "memory": "buffers belong to the device itself: every AccelDevice allocates, fills and copies",
}

MAX_LINES, MAX_ENTRIES = 500, 16
ONE_PER_LIBRARY = ("kernel", "backends/")  # folders that hold a module per library may hold as many as there are

# Folders under tests/ that belong to no package of src/callboard.
TESTS_OF_THE_WHOLE = {"conformance", "data", "faults", "gpu", "platforms", "tools", "typing"}


@dataclass(frozen=True)
class Module:
    """One file below src/callboard."""

    path: Path  # relative to src/callboard
    text: str
    tree: ast.Module

    @property
    def package(self) -> tuple[str, ...]:
        """What a relative import starts from."""
        return ("callboard", *self.path.parent.parts)

    @property
    def layer(self) -> str:
        return self.path.parts[0] if len(self.path.parts) > 1 else "root"

    @property
    def is_public(self) -> bool:
        return not any(part.startswith("_") for part in self.path.with_suffix("").parts if part != "__init__")

    @cached_property
    def imports(self) -> list["Import"]:
        by_name = "import_module" in self.text or "__import__" in self.text
        return list(_imports(self.tree, self.package, lazy=False, by_name=by_name))


@dataclass(frozen=True)
class Import:
    target: str  # absolute and dotted; of `from a import b` it is a.b
    line: int
    lazy: bool  # inside a function


def _imports(node: ast.AST, package: tuple[str, ...], *, lazy: bool, by_name: bool) -> Iterator[Import]:
    statements = (getattr(node, field, ()) for field in ("body", "orelse", "finalbody", "handlers", "cases"))
    for child in ast.iter_child_nodes(node) if by_name else chain.from_iterable(statements):
        match child:
            case ast.Import(names=names):
                yield from (Import(name.name, child.lineno, lazy) for name in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                start = package[: len(package) - level + 1] if level else ()
                base = ".".join([*start, *([module] if module else [])])
                yield from (Import(f"{base}.{name.name}", child.lineno, lazy) for name in names)
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]) if _imports_by_name(function):
                yield Import(name, child.lineno, lazy)
        inside = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _imports(child, package, lazy=inside, by_name=by_name)


def _imports_by_name(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
    return name in {"import_module", "__import__"}


@dataclass(frozen=True)
class Tree:
    """A repository, as far as the rules look at it."""

    root: Path

    @property
    def source(self) -> Path:
        return self.root / "src" / "callboard"

    @cached_property
    def modules(self) -> list[Module]:
        files = sorted(self.source.rglob("*.py"))
        texts = [path.read_text("utf-8") for path in files]
        return [
            Module(path.relative_to(self.source), text, ast.parse(text))
            for path, text in zip(files, texts, strict=True)
        ]

    def layer_of(self, target: str) -> str | None:
        """The layer that an absolute import names, None for other distributions."""
        first, *rest = target.split(".")
        if first != "callboard":
            return None
        return rest[0] if rest and (self.source / rest[0]).is_dir() else "root"


# -- the rules ---------------------------------------------------------------------------------------------------------


def layers(tree: Tree) -> Iterator[str]:
    """Imports point one way: actors <- core <- kernel <- device <- multi_device <- blueprints <- serve, cli."""
    for module in tree.modules:
        for imported in module.imports:
            layer = tree.layer_of(imported.target)
            if layer is None or (layer == module.layer and layer != "backends"):
                continue
            if layer == module.layer == "backends" and imported.target.split(".")[2:3] == [module.path.parts[1]]:
                continue  # its own folder, not another backend's
            allowed = LAYERS.get(module.layer)
            if allowed is None:
                yield f"{module.path}: LAYERS has no row for {module.layer!r}"
                break
            excused = any(
                layer == target and (module.path == Path(place) or Path(place) in module.path.parents)
                for place, target in LAYER_EXCEPTIONS
            )
            if layer not in allowed and not excused:
                yield f"{module.path}:{imported.line}: {module.layer} may not import {imported.target} ({layer})"


def sides(tree: Tree) -> Iterator[str]:
    """What runs in the application and what runs beside the context know of each other by messages only."""
    for module in tree.modules:
        if module.layer != "device" or len(module.path.parts) < 3:
            continue
        side = module.path.parts[1]
        for imported in module.imports:
            other = (imported.target.split(".") + [""] * 3)[2] if tree.layer_of(imported.target) == "device" else ""
            if other in SIDES and other != side and other not in SIDES.get(side, set()):
                yield f"{module.path}:{imported.line}: {side} may not import {imported.target}"


def vendor_imports(tree: Tree) -> Iterator[str]:
    """Vendor packages are imported under backends/ only, and lazily where LAZY_VENDOR_IMPORTS gives a reason."""
    for module in tree.modules:
        if module.layer == "backends":
            continue
        allowed, _ = LAZY_VENDOR_IMPORTS.get(module.path.as_posix(), (set(), ""))
        for imported in module.imports:
            vendor = imported.target.partition(".")[0]
            if vendor not in VENDORS or (vendor in allowed and imported.lazy):
                continue
            advice = "move the import into a function" if vendor in allowed else "only backends/ may"
            yield f"{module.path}:{imported.line}: imports {imported.target}: {advice}"


def file_size(tree: Tree) -> Iterator[str]:
    """No file is longer than MAX_LINES: at 350, look for the second idea. What is generated is not read."""
    for folder in ("src", "tests", "benchmarks", "examples", "tools"):
        for path in sorted((tree.root / folder).rglob("*.py")):
            text = path.read_text("utf-8")
            lines = text.count("\n")
            if lines > MAX_LINES and not text.startswith("# Generated by `"):
                yield f"{path.relative_to(tree.root)}: {lines} lines, at most {MAX_LINES}"


def folder_size(tree: Tree) -> Iterator[str]:
    """A folder of the library fits a screen."""
    folders = (path for path in sorted(tree.source.rglob("*")) if path.is_dir() and path.name != "__pycache__")
    for folder in [tree.source, *folders]:
        name = folder.relative_to(tree.source).as_posix()
        if name.startswith(ONE_PER_LIBRARY) or "data" in folder.parts:
            continue
        entries = [path.name for path in folder.iterdir() if not path.name.startswith(("__", ".", "py.typed"))]
        if folder == tree.source:  # a package per layer, which LAYERS lists
            entries = [entry for entry in entries if entry not in LAYERS]
        if len(entries) > MAX_ENTRIES:
            yield f"src/callboard/{name}: {len(entries)} entries, at most {MAX_ENTRIES}"


def no_utils(tree: Tree) -> Iterator[str]:
    """A name that says nothing collects everything."""
    for module in tree.modules:
        if re.fullmatch(r"_*(utils?|helpers?|misc|common)", module.path.stem):
            yield f"{module.path}: name it after what it holds"


def sorted_all(tree: Tree) -> Iterator[str]:
    """``__all__`` is a literal, in ruff's order (CONSTANTS, Classes, functions), each name once."""
    for module in tree.modules:
        for node in module.tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                    pass
                case ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as value):
                    pass
                case _:
                    continue
            try:
                names = list(ast.literal_eval(value))
            except ValueError:
                yield f"{module.path}:{node.lineno}: __all__ is not a literal"
                continue
            ordered = sorted(set(names), key=_all_order)
            if names != ordered:
                yield f"{module.path}:{node.lineno}: __all__ is not sorted, each name once: {ordered}"


def _all_order(name: str) -> tuple[int, list[tuple[int, int | str]]]:
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part]


def docstrings(tree: Tree) -> Iterator[str]:
    """A public module says its one idea."""
    for module in tree.modules:
        if module.is_public and not ast.get_docstring(module.tree):
            yield f"{module.path}: no module docstring"


def library_coverage(tree: Tree) -> Iterator[str]:
    """A library in kernel/ runs on the CPU, the reference, and has a conformance suite under its name."""
    for path in sorted((tree.source / "kernel").glob("*")):
        stem = path.stem
        if stem.startswith("_") or stem in NOT_LIBRARIES or (path.is_file() and path.suffix != ".py"):
            continue
        if path.is_dir() and not (path / "__init__.py").exists():
            continue
        cpu = tree.source / "backends" / "cpu" / stem
        if not (cpu.with_suffix(".py").exists() or (cpu / "__init__.py").exists()):
            yield f"kernel/{stem}: no backends/cpu/{stem}"
        suite = tree.root / "tests" / "conformance"
        if not (suite / f"test_{stem}.py").exists() and not list((suite / stem).glob("test_*.py")):
            yield f"kernel/{stem}: no tests/conformance/test_{stem}.py"


def mirrored_tests(tree: Tree) -> Iterator[str]:
    """tests/<package>/ for src/callboard/<package>/, both ways; test files are named test_*.py."""
    tests = tree.root / "tests"
    packages = {module.layer for module in tree.modules if module.path.stem != "__init__"} - {"root"}
    # A backend is tested by the conformance suites; what is its own has tests/backends/, but need not.
    for package in sorted(packages - {"backends"}):
        if not list((tests / package).rglob("test_*.py")):
            yield f"src/callboard/{package} has no tests/{package}/test_*.py"
    for folder in sorted(path for path in tests.iterdir() if path.is_dir()):
        name = folder.name
        if not list(folder.rglob("*.py")) or name in TESTS_OF_THE_WHOLE | packages | {"backends"}:
            continue
        yield f"tests/{name}/ mirrors no package of src/callboard"


def broad_excepts(tree: Tree) -> Iterator[str]:
    """Who catches everything says on that line why."""
    for module in tree.modules:
        if not re.search(r"^\s*except\b(?=\s*:|.*Exception|.*\($)[^#\n]*$", module.text, re.MULTILINE):
            continue  # none is without a reason
        lines = module.text.splitlines()
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ExceptHandler) or _names(node.type).isdisjoint(BROAD):
                continue
            if "#" not in lines[node.lineno - 1]:
                yield f"{module.path}:{node.lineno}: {lines[node.lineno - 1].strip()}"


BROAD = {"", "Exception", "BaseException"}


def class_names(tree: Tree) -> Iterator[str]:
    """A class name has one meaning within a package; names with an underscore are local to their module."""
    packages: dict[tuple[str, ...], dict[str, Path]] = {}
    for module in tree.modules:
        if module.layer == "root":  # a blocking class has the name of the one that it wraps
            continue
        names = packages.setdefault(module.path.parent.parts[: PACKAGE_DEPTH.get(module.layer, 1)], {})
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                first = names.setdefault(node.name, module.path)
                if first != module.path:
                    yield f"{module.path}:{node.lineno}: {first} has a class {node.name}, too"


# Folders that hold a package per library or blueprint; other layers are one package each.
PACKAGE_DEPTH = {"backends": 3, "kernel": 2, "patterns": 2, "multi_device": 2}


def _names(caught: ast.expr | None) -> set[str]:
    if caught is None:
        return {""}
    return {node.id for node in ast.walk(caught) if isinstance(node, ast.Name)}


RULES: dict[str, Callable[[Tree], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        *(layers, sides, vendor_imports, file_size, folder_size, no_utils, sorted_all),
        *(docstrings, library_coverage, mirrored_tests, broad_excepts, class_names),
    )
}


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Looking for garbage among millions of nodes takes longer than making them."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_repository() -> None:
    """All rules in one test: what takes long is to parse the sources, which each worker would do."""
    tree = Tree(ROOT)
    assert tree.modules, f"nothing to look at below {tree.source}"
    problems = [(rule.__doc__, problem) for rule in RULES.values() for problem in rule(tree)]
    assert not problems, "\n".join(f"{problem}\n    {why}" for why, problem in problems)


def test_exceptions_are_used_and_explained() -> None:
    """A reason outlives its cause easily; an exception for a file that no longer exists goes."""
    assert all([*LAYER_EXCEPTIONS.values(), *NOT_LIBRARIES.values(), *(why for _, why in LAZY_VENDOR_IMPORTS.values())])
    assert [path for path in LAZY_VENDOR_IMPORTS if not (ROOT / "src" / "callboard" / path).exists()] == []


# -- the rules can fail ------------------------------------------------------------------------------------------------

GOOD = {
    "src/callboard/__init__.py": '"""Root."""\nfrom callboard.core import A\n__all__ = ["LIMIT", "A", "b"]\n',
    "src/callboard/actors/cell.py": '"""A cell."""\nclass Cell: ...\nclass _Lane: ...\n',
    "src/callboard/actors/lane.py": '"""A lane."""\nclass _Lane: ...\n',
    "src/callboard/core/__init__.py": '"""Core."""\nfrom ..actors import cell\n',
    "src/callboard/kernel/blas.py": '"""BLAS."""\nimport numpy\nfrom callboard.core import A\n',
    "src/callboard/kernel/_op.py": "",
    "src/callboard/kernel/memory.py": '"""Memory."""\n',
    "src/callboard/backends/cpu/__init__.py": '"""C."""\nimport callboard.backends.cpu.blas\nfrom . import blas\n',
    "src/callboard/backends/cpu/blas.py": '"""BLAS."""\nfrom ...kernel import blas\nimport torch\n',
    "tests/actors/test_cell.py": "",
    "tests/kernel/test_op.py": "",
    "tests/conformance/test_blas.py": "",
}

# rule, the file that breaks it, its text (None: the file is missing), what the problem must say
BAD: list[tuple[str, str, str | None, str]] = [
    ("broad_excepts", "core/a.py", "try:\n    pass\nexcept (KeyError, Exception) as e:\n    pass\n", "core/a.py:3"),
    ("broad_excepts", "core/a.py", "try:\n    pass\nexcept:\n    pass\n", "core/a.py:3: except:"),
    ("layers", "actors/a.py", "from callboard.core import A\n", "actors may not import callboard.core.A (core)"),
    ("layers", "core/a.py", "from ..kernel import blas\n", "core may not import callboard.kernel.blas (kernel)"),
    ("layers", "core/a.py", "def f():\n    from callboard import kernel\n", "may not import callboard.kernel (kernel)"),
    ("layers", "core/a.py", "import callboard\n", "core may not import callboard (root)"),
    ("layers", "core/a.py", "from callboard import System\n", "core may not import callboard.System (root)"),
    ("layers", "core/a.py", "import_module('callboard.kernel.blas')\n", "core may not import callboard.kernel.blas"),
    ("layers", "core/a.py", "from callboard.backends import cpu\n", "core may not import callboard.backends.cpu"),
    (
        "layers",
        "__init__.py",
        '"""R."""\nimport callboard.backends.cpu\n',
        "root may not import callboard.backends.cpu",
    ),
    ("layers", "backends/cpu/a.py", "import callboard.actors.cell\n", "backends may not import callboard.actors.cell"),
    ("layers", "backends/cuda/a.py", "from ..cpu import blas\n", "backends may not import callboard.backends.cpu.blas"),
    ("layers", "nowhere/a.py", "import callboard.core\n", "no row for 'nowhere'"),
    (
        "sides",
        "device/client/a.py",
        "from callboard.device.host import a\n",
        "client may not import callboard.device.host.a",
    ),
    ("sides", "device/host/a.py", "def f():\n    import callboard.device.client.a\n", "host may not import callboard"),
    ("sides", "device/protocol/b/a.py", "from callboard.device.client import a\n", "protocol may not import callboard"),
    ("vendor_imports", "kernel/a.py", "import cupy\n", "imports cupy"),
    ("vendor_imports", "kernel/a.py", "def f():\n    from torch.cuda import Stream\n", "imports torch.cuda.Stream"),
    ("vendor_imports", "kernel/a.py", "f = lambda: importlib.import_module('nvmath')\n", "imports nvmath"),
    ("file_size", "core/a.py", "x = 1\n" * (MAX_LINES + 1), "501 lines"),
    ("no_utils", "core/_utils.py", "", "name it after"),
    ("sorted_all", "core/a.py", "__all__ = ['b', 'a']\n", "not sorted"),
    ("sorted_all", "core/a.py", "__all__ = ['a', 'a']\n", "each name once"),
    ("sorted_all", "core/a.py", "__all__: list[str] = ['a', 'B']\n", "not sorted"),
    ("sorted_all", "core/a.py", "__all__ = names()\n", "not a literal"),
    ("docstrings", "core/a.py", "x = 1\n", "no module docstring"),
    ("class_names", "actors/inner/a.py", '"""A."""\nclass Cell: ...\n', "cell.py has a class Cell, too"),
    ("library_coverage", "kernel/fft.py", '"""FFT."""\n', "no backends/cpu/fft"),
    ("library_coverage", "kernel/fft/__init__.py", '"""FFT."""\n', "no tests/conformance/test_fft.py"),
    ("library_coverage", "backends/cpu/blas.py", None, "no backends/cpu/blas"),
    ("mirrored_tests", "train/a.py", '"""A."""\n', "train has no tests"),
]


def write(root: Path, files: dict[str, str]) -> Tree:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    return Tree(root)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_rule_accepts_a_good_tree(tmp_path: Path, rule: Callable[[Tree], Iterator[str]]) -> None:
    assert list(rule(write(tmp_path, GOOD))) == []


@pytest.mark.parametrize("name, file, text, says", BAD)
def test_rule_refuses_a_bad_tree(tmp_path: Path, name: str, file: str, text: str | None, says: str) -> None:
    files = GOOD | {f"src/callboard/{file}": text or ""}
    tree = write(tmp_path, files)
    if text is None:
        (tree.source / file).unlink()
    assert any(says in problem for problem in RULES[name](tree))


def test_folder_size_refuses_a_full_folder(tmp_path: Path) -> None:
    full = {f"src/callboard/{folder}/m{n}.py": "" for folder in ("core", "kernel") for n in range(MAX_ENTRIES + 1)}
    assert list(folder_size(write(tmp_path, full))) == ["src/callboard/core: 17 entries, at most 16"]


def test_a_test_folder_without_a_package_is_refused(tmp_path: Path) -> None:
    tree = write(tmp_path, GOOD | {"tests/odd/test_a.py": ""})
    assert list(mirrored_tests(tree)) == ["tests/odd/ mirrors no package of src/callboard"]


def test_lazy_vendor_import_needs_an_entry_and_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAZY_VENDOR_IMPORTS, "kernel/lazy.py", ({"torch"}, "a reason"))
    text = '"""Lazy."""\nimport torch\ndef f():\n    import torch\n    import cupy\n'
    tree = write(tmp_path, GOOD | {"src/callboard/kernel/lazy.py": text})
    problems = list(vendor_imports(tree))
    assert [problem.split(": ")[0] for problem in problems] == ["kernel/lazy.py:2", "kernel/lazy.py:5"]
    assert "into a function" in problems[0]


def test_every_rule_has_a_bad_tree() -> None:
    assert set(RULES) == {name for name, *_ in BAD} | {"folder_size"}
