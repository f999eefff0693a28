"""Bringing what is desired to every agent: the plan, the sending, and policies tried on a few agents first.

Pure modules decide and others carry out: `plan.py` and `reach.py` decide what is sent to whom, `assigning.py` and
`pushing.py` do it, and `transport.py` seals and sends; `stepping.py`, `guards.py` and `evidence.py` decide about
rollouts in steps, and `advancing.py` does it. `enforcing.py` decides what a publish is refused for.
"""
