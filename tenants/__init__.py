"""Organisations, members, keys and policies. Imports no other app of the control plane.

`models/` has tables and constraints, `services/` write (each function is one transaction), `selectors.py` reads, and
`access.py` does every lookup under the actor's permissions. `policy.py`, `bounds.py`, `limits.py`, `shares.py`,
`drafts.py` and `preview.py` do no I/O. `audit.py` is the transaction of every write, `locks.py` the one order in which
rows are locked, `config/` GitOps, and `snapshots.py` builds the desired state of a group's agents.
"""
