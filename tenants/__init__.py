"""Who owns what, and what each namespace asks for: organisations, members, keys, policies. Knows no other app of ours.

`models/` has tables and constraints, `services/` write (each function is one transaction), `selectors.py` reads,
`access.py` looks everything up by who asks. `policy.py`, `bounds.py`, `limits.py`, `shares.py`, `drafts.py` and
`preview.py` are pure. `audit.py` is the transaction of every write, `locks.py` the one order in which rows are locked,
`config/` GitOps, and `snapshots.py` what the agents of one group are to apply.
"""
