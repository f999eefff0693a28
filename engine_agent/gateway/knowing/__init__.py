"""What a gateway knows of prompts and caches: whose caches hold how much of the prompt that somebody sends.

`knowing.py` is its face. `prompts.py`, `cutting.py` and `chains.py` turn bodies into marks, `bundles.py` holds what
that takes, and `watching.py` follows engines' block events into `index.py`.
"""
