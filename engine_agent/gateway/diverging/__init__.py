"""Samples prompts, as keyed marks and never as text, to explain why prompts miss. Start with `diverging.py`."""
