"""Finds where a namespace's prompts diverge and agree again. Standard library, no text. Start with `analysing.py`."""
