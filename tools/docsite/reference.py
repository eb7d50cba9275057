"""The API reference: a page for each package, with its public names.

A page names the objects; mkdocstrings reads their signatures and docstrings from the sources and imports nothing.
"""

import ast
from pathlib import Path

__all__ = ["public_names", "write_reference"]

TITLES = {
    "actors": "Actors",
    "agents": "Retrieval and graphs",
    "core": "Arrays, ops and errors",
    "device": "Devices",
    "kernel": "Kernels and libraries",
    "multi_device": "Many devices",
    "patterns": "Serving",
    "realtime": "Simulations",
    "serve": "Models over HTTP",
    "telemetry": "Telemetry",
    "train": "Training",
}
"""Packages with a page of their own; names from elsewhere are on the page "Others"."""


def public_names(stub: Path) -> dict[str, str]:
    """Public names, and the module that defines each; modules themselves are left out."""
    found: dict[str, str] = {}
    for node in ast.parse(stub.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "callboard":
            found |= {alias.name: node.module for alias in node.names}
    return found


def write_reference(root: Path, folder: Path) -> list[str]:
    """Write the pages; their names."""
    package = root / "src" / "callboard"
    groups: dict[str, dict[str, str]] = {}
    served = dict.fromkeys(public_names(package / "serve/__init__.pyi"), "callboard.serve")  # imported by itself
    for name, module in {**served, **public_names(package / "__init__.pyi")}.items():
        group = module.split(".")[1] if "." in module else "others"
        groups.setdefault(group if group in TITLES else "others", {})[name] = module
    folder.mkdir(parents=True, exist_ok=True)
    index = ["# API reference", "", "The public names: `import callboard as cb`, then `cb.NAME`.", ""]
    for group, names in sorted(groups.items()):
        title = TITLES.get(group, "Others")
        blocks = [f"# {title}", *(f"::: {module}.{name}" for name, module in sorted(names.items()))]
        (folder / f"{group}.md").write_text("\n\n".join(blocks) + "\n", "utf-8")
        index += [f"## [{title}]({group}.md)", "", ", ".join(f"`{name}`" for name in sorted(names)), ""]
    (folder / "index.md").write_text("\n".join(index), "utf-8")
    return sorted(groups)
