"""Bringing what is desired to every agent: the plan, the sending, and policies tried on a few agents first."""
