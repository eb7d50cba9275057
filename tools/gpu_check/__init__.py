"""Proof on a GPU: ``scripts/gpu-check`` runs the tests marked ``gpu`` and the benchmarks, and stores a summary.

Runs from a source tree, installs nothing, needs neither a network nor pytest-asyncio. ``scripts/coverage-page`` and
``scripts/readme-figures`` write the pages that are generated from the summaries in ``docs/hardware/``. No part of the
distribution.
"""
