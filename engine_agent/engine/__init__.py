"""The engine: requests in, tokens out, step after step; a model's forward pass over pages of keys and values.

Begin with `engine.py`. `config.py` reads what a model is, `weights.py` its tensors and who it is, `model.py` computes;
`batch.py` is the only attention there is: every key and value goes into a page and is read back from it.
`admissions.py`, `scheduler.py`, `shares.py` and `victims.py` say who gets blocks and a seat, what a step computes, and
who gives way; `held.py`, `tenants.py` and `warming.py` apply snapshots and keep pins.
"""
