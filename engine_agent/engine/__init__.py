"""The engine: a model's weights and its forward pass over pages of keys and values.

`config.py` reads what a model is, `weights.py` its tensors and who it is, `rope.py` how it counts positions, `model.py`
computes, `paged.py` is the only attention there is: every key and value goes into a page and is read back from it.
"""
