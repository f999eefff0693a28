"""The engine: takes requests and returns tokens, step by step, with a model's forward pass over pages of K and V.

Start reading at `engine.py`. `config.py` reads a model's configuration, `weights.py` its tensors and revision, and
`model.py` computes. `batch.py` is the only attention: every key and value is written to a page and read back from it.
`admissions.py` and `victims.py` decide which requests get blocks and a seat in the batch and which are preempted;
`scheduler.py` and `shares.py` decide what a step computes. `held.py`, `tenants.py` and `warming.py` apply snapshots and
maintain pins.
"""
