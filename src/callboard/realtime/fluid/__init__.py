"""Fluids on a grid with velocities on the faces of its cells."""
