"""Isolation canary: checks that no tenant detects another's cached prompts, by count or time. Start with `watch.py`."""
