"""`luminet doctor`: check an installation and say how to repair it.

`place.py` finds out where it runs, `checks.py` lists every check, `examining.py` runs those for this place
concurrently. Each area has a module: its checks collect facts, and its functions named `…_finding` or `…_findings`
evaluate them. The latter are pure.
"""
