"""The programs behind ``scripts/dev`` and ``scripts/release``: generated files, test selection, releases.

The package runs from a source tree and is not in the distribution.
"""
