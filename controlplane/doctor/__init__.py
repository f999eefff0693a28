"""`luminet doctor`: whether an installation is well, and what to do where it is not.

`place.py` finds out where it runs, `checks.py` lists every check, `examining.py` runs those of the place at once. Each
area has a module: its checks collect facts, and its functions named `…_finding` or `…_findings` evaluate them, purely.
"""
