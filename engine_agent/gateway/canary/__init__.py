"""The isolation canary: no tenant may detect another's cached prompts, by counts or by time. Start with `watch.py`."""
