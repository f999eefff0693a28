"""The gateway: authenticates each request, finds its namespace, and forwards it to an engine. Start with `app.py`.

`keys.py` (authentication), `route.py`, `scoring.py`, `health.py` and `silence.py` (choice of an engine) are pure;
`permit.py` repeats their decisions. The gateway stores only its last snapshot and the engines' bundles.
"""
