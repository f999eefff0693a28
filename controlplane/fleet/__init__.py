"""Agents: how they join, what they are, what they say, and whether they are well."""
