"""Everything that touches the bytes of keys and values. The map is in docs/kernels.md."""
