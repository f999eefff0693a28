"""Agents: enrolment, reports, health and operations.

Start with `door.py`, the agent API (`/agent/v1/…`), which runs in front of Django. `requests.py` reads HTTP within
limits; `desk.py`, `roster.py` and `recognising.py` keep what requests share. `arrivals.py` and `intake.py` (both pure)
decide what is new in a batch of reports; `committing.py` and `recording.py` write the batches of many agents in one
commit, `heartbeats.py` the newest heartbeat of each. Agents join through `join_tokens.py` and `enrolment.py`;
`broker.py` and `broker_rights.py` manage their Redis logins. `health.py` derives states and conditions, `operations.py`
tracks actions that operators request. `rollouts` decides which state each agent applies.
"""
