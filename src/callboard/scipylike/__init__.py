"""SciPy's names over the refs of one device, ``dev.scipy``: tables of functions, made of ``dev.np`` and expressions."""
