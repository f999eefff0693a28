"""Deliver the desired state to every agent: plan it, send it, and try policies on a few agents first.

Pure modules decide and others carry out. `plan.py` and `reach.py` decide what is sent to which agent, `assigning.py`
and `pushing.py` do it, and `transport.py` seals and sends. For rollouts in steps, `stepping.py`, `guards.py` and
`evidence.py` decide, and `advancing.py` does it. `enforcing.py` decides which publishes are refused.
"""
