"""Beside real vLLM processes, from our own virtualenv."""
