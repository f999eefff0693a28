"""Finds where a namespace's prompts diverge, and where they agree again. Stores no text. Start with `analysing.py`."""
