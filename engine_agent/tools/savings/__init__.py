"""`luminet savings`: measure what prefix caching saves on one machine, by turns with and without. Start: `plan.py`."""
