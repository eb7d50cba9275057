"""Checks on a GPU: ``scripts/gpu-check`` runs the tests marked ``gpu`` and the benchmarks, and stores a summary.

This package runs from a source tree, installs nothing, and needs neither a network nor pytest-asyncio.
``scripts/coverage-page`` and ``scripts/readme-figures`` write the pages that are generated from the summaries in
``docs/hardware/``. The package is not in the distribution.
"""
