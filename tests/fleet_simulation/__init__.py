"""The fleet's protocol in one process and in virtual time: the real decisions, and everything around them a model.

`python -m tests.fleet_simulation --seed 7` replays one run; world.py has what a run is, ledger.py what must hold in it.
"""
