"""Turns request bodies into tokens, with the same code in engines and gateways. Start with `bundle.py`."""
