"""The rows of `make bench-gpu`: apart from those of `make bench`, which need no GPU.

In this order: first whether the kernels are right, then what customers feel, then the kernels' own speed.
"""

from tests.bench.registry import Registry

GPU = Registry(order=("CHECK", "E2", "H3", "H1", "H2", "MOVE", "BUILD"))
row = GPU.row
