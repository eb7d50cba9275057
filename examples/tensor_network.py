"""A tensor network: the partition function of a small Ising magnet by one einsum, against the sum over all states.

Spins ``+1`` and ``-1`` on a square lattice, energy ``-sum(s_i * s_j)`` over neighbours. Each bond is a 2 x 2 matrix
``exp(beta * s * t)``; a spin that several bonds touch is an index that they share (a hyperedge). The specific heat
follows from three temperatures by a difference.
"""

import asyncio
import itertools
import sys

import numpy as np

import callboard as cb

SIDE = 4


def bonds(side: int) -> list[tuple[int, int]]:
    """Neighbours on a square with open edges."""
    right = [(i, i + 1) for i in range(side * side) if (i + 1) % side]
    return right + [(i, i + side) for i in range(side * (side - 1))]


def by_counting(beta: float, side: int) -> float:
    """The logarithm of the sum over all states."""
    states = np.array(list(itertools.product((1, -1), repeat=side * side)))
    energy = -sum(states[:, i] * states[:, j] for i, j in bonds(side))
    return float(np.log(np.exp(-beta * energy).sum()))


async def main(name: str) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    edges = bonds(SIDE)
    equation = ",".join(letters[i] + letters[j] for i, j in edges) + "->"
    signs = np.outer([1, -1], [1, -1])
    async with cb.device(name) as gpu:

        async def logarithm(beta: float) -> float:
            bond = gpu.put(np.exp(beta * signs))
            return float(np.log(await gpu.tensor.einsum(equation, *[bond] * len(edges)).get()))

        print(f"{SIDE} x {SIDE} spins, {len(edges)} bonds, {2 ** (SIDE * SIDE)} states")
        for beta in (0.1, 0.3, 0.4406868, 0.8):
            found = await logarithm(beta)
            assert np.isclose(found, by_counting(beta, SIDE), rtol=1e-12)
            step = 1e-3
            bend = await logarithm(beta + step) - 2 * found + await logarithm(beta - step)
            print(f"beta {beta:.4f}: log Z = {found:.9f}, specific heat {beta**2 * bend / step**2 / SIDE**2:.4f}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
