"""Agents: how they join, what they are, what they say, and whether they are well.

Reports come up by `door.py` (`/agent/v1/…`, in front of Django), a good place to start: `requests.py` reads HTTP within
bounds, `desk.py`, `roster.py` and `recognising.py` are shared by its requests, `arrivals.py` and `intake.py` (pure) say
what is new, `committing.py` and `recording.py` write many agents' reports in one commit, `heartbeats.py` the newest of
each. Agents join by `join_tokens.py` and `enrolment.py`; `broker.py` and `broker_rights.py` are their logins at Redis;
`health.py` says how they are, `operations.py` what operators ask of them. What each is to apply is decided in
`rollouts`.
"""
