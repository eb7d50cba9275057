"""Names of a package that are loaded on first use: its ``__init__.pyi`` says where each is defined."""

import functools

__all__ = ["where"]


@functools.cache
def where(package: str) -> dict[str, str]:
    """The module of each public name of a package, from the imports of its ``__init__.pyi``.

    Raises:
        ImportError: The package is installed without that file.
    """
    import ast
    import pkgutil

    stub = pkgutil.get_data(package, "__init__.pyi")  # from a zip archive, too
    if stub is None:
        file = f"{package.replace('.', '/')}/__init__.pyi"
        raise ImportError(f"callboard is installed without {file}, the list of public names")
    imports = (node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom))
    return {name.name: str(node.module) for node in imports for name in node.names}
