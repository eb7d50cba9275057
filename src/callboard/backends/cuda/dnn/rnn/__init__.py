"""Recurrent networks on a GPU, through cuDNN's C API: its graph API has no recurrent networks."""
