"""``SourcesCache``: what Numba compiled, on disk, for as long as all the code in it is the same.

Numba keeps machine code until the file of the function is another one. It has functions of other files in it, too, so
after an upgrade that changed only those, the old code would run. To be imported where Numba is installed.
"""

import ast
import functools
import hashlib
import logging
import sys
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.sigutils import normalize_signature

__all__ = ["SourcesCache", "digest"]

PACKAGE = "callboard.realtime."

_log = logging.getLogger(__name__)


class SourcesCache(FunctionCache):  # type: ignore[misc]  # of Numba, which has no types
    """The cache of a function, in the folder that Numba would take.

    What cannot be read is compiled again: a file that a crash left empty, one of another type that two processes
    wrote at once. What cannot be written is compiled by the next process.

    Raises:
        RuntimeError: No folder can be written.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp(), digest(function.__module__)
        self._cache_file = IndexDataCacheFile(
            cache_path=self.cache_path, filename_base=self._impl.filename_base, source_stamp=stamp
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)
            if found is None or tuple(found.signature.args) == tuple(normalize_signature(sig)[0]):
                return found
            raise ValueError(f"it is of {found.signature}")
        except Exception as error:  # any, as it is unpickled
            _log.warning("%s of %s is not usable, and made again: %r", self._name, self.cache_path, error)
        try:
            self.flush()
        except OSError as error:
            _log.debug("%r", error)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _log.warning("%s is not kept in %s: %r", self._name, self.cache_path, error)


def digest(module: str) -> str:
    """Of the sources of an imported module, and of all of ``callboard.realtime`` that it imports."""
    sources: dict[str, bytes] = {}
    wanted = [module]
    while wanted:
        name = wanted.pop()
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is None or name in sources or not name.startswith(PACKAGE):
            continue
        sources[name] = Path(file).read_bytes()
        wanted += _imported(sources[name])
    return hashlib.sha256(b"\0".join(sources[name] for name in sorted(sources))).hexdigest()


@functools.cache
def _imported(source: bytes) -> list[str]:
    """Names that are modules, or are in one, of the imports at the beginning of a file."""
    found = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom) and node.module]
    return [f"{node.module}{rest}" for node in found for rest in ("", *(f".{alias.name}" for alias in node.names))]
