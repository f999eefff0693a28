"""The prefix index: which engines have how much of a request's prompt cached. Start with `knowing.py`, the interface.

`prompts.py`, `cutting.py` and `chains.py` turn bodies into marks, `bundles.py` stores the tokenizers and templates that
this needs, and `watching.py` follows engines' block events into `index.py`.
"""
