"""The sidecar of an engine or a gateway: it applies the control plane's commands and reports usage and state.

Start with `state.py`, which decides what to do for each event. `runtime.py` does it, with `worker.py` (Celery),
`link.py` (HTTPS), `store.py` and `spool.py` (disk) and the engine's admin API (`admin.py`). `usage.py` and `folding.py`
aggregate the engine's journal into usage rows.
"""
