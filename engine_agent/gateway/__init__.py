"""The front door: who asks, in which namespace, and which engine answers.

`keys.py` (whose a request is), `route.py`, `scoring.py`, `health.py` and `silence.py` (which engine) are pure;
`permit.py` asks them again by what is held now. It keeps no state but its last snapshot and engines' bundles.
"""
