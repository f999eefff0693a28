"""Our part of vLLM's own API server: identifies callers, reports hits, and accepts policies; see docs/vllm.md.

Runs in vLLM's virtualenv. Start with `endpoint.py`, which vLLM loads as an entry point.
"""
