"""Our part of vLLM's own API server: whose a request is, what it hit, and who may set policies; docs/vllm.md.

Runs in vLLM's virtualenv. Only `endpoint.py` is known to vLLM, as an entry point.
"""
