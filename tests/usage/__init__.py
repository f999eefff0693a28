"""Usage in tests: agents that report it, clients that cause it, and sums of it that no product code made."""
