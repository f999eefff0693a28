"""The demo model: a small Llama trained on Python's own documentation."""
