"""Agents, and the tokens they join with."""
