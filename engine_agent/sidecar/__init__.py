"""What stands beside an engine, or inside a gateway: it obeys the control plane, and tells it what happened.

`state.py` decides, of events, what is to be done. `runtime.py` does it, with `worker.py` (Celery), `link.py` (HTTPS),
`store.py` and `spool.py` (disk) and an engine's admin API (`admin.py`). `usage.py` and `folding.py` make rows of the
engine's journal.
"""
