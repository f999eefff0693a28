"""`luminet doctor`: whether an installation is well, and what to do where it is not.

`place.py` finds out where it runs, `checks.py` lists what is examined there, `looking/` gathers facts, `judging/`
(pure) says what they mean, `examining.py` runs all of it at once.
"""
