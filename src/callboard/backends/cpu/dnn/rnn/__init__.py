"""Recurrent networks on the CPU: NumPy, with explicit formulas for the gradients."""
