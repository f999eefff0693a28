"""Organisations: the list, one of them, its people, keys, limits, bounds and trail."""
