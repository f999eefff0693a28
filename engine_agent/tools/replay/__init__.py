"""Replay recorded traffic through the real block manager: the hit rate of another TTL, mode, pool or share.

`trace.py` reads a trace, `namespaces.py` assigns requests to namespaces, `policies.py` parses the compared policies,
`tokens.py` makes prompts from hash ids, `running.py` replays, `outcome.py` counts, `report.py` and `plots.py` show
results, `command.py` is the command. Only plots need more than the standard library: matplotlib.
"""
