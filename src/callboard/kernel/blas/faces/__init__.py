"""The methods of ``dev.blas``, in the files of their messages' stems."""
