"""Recorded traffic through the real block manager: what hit rate another TTL, mode, pool or share would give.

`trace.py` reads a trace, `namespaces.py` says whose request is whose, `policies.py` what is compared, `tokens.py` makes
prompts of hash ids, `running.py` replays, `outcome.py` counts, `report.py` and `plots.py` show it, `command.py` is the
command. The standard library is all it needs, matplotlib for plots aside.
"""
