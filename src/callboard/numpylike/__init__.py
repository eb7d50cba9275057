"""NumPy's names over the refs of one device, ``dev.np``: a table of functions, made of ``dev.xp`` and of libraries."""
