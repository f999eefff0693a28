"""The KV calculator: from a model's shape to bytes, to what fits on an accelerator, to a bound of tokens a second.

Every number of bytes is exact. A request holds whole blocks of 16 tokens; a layer with a window stops growing there. On
N GPUs each holds ceil(kv_heads / N) heads: more GPUs than KV heads hold copies, and a latent vector (MLA) is on each.
Standard library only: the control plane imports this. A reader starts at `asked.py` (what somebody wants to know) and
`calculating.py` (what comes out); `held.py` counts the bytes, `machines.py` what is there for them.
"""
