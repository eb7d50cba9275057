"""NumPy's names over the refs of one device (``dev.np``): a table of functions, composed of ``dev.xp`` and libraries."""
