"""The Python array API standard over refs: the functions behind ``dev.xp`` and the operators of a ref."""
