"""Graphs of steps: a dataflow DAG of functions and actors, and state graphs with loops, interrupts and checkpoints."""
