"""``python -m callboard.testing.gpu_check``: proof on a GPU, kept as JSON in ``docs/hardware/``.

Runs the tests marked ``gpu`` and the benchmarks from a source tree, installs nothing, needs no network and no
pytest-asyncio. :mod:`callboard.testing.gpu_check.coverage` makes ``docs/coverage.md`` from what it stored.
"""
