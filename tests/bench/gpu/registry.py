"""The rows of `make bench-gpu`: apart from those of `make bench`, which need no GPU."""

from tests.bench.registry import Registry

GPU = Registry()
row = GPU.row
