"""Organisations: the list, and for each its front page, members, keys, limits, bounds and audit trail."""
