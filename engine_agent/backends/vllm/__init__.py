"""Real vLLM under our policies. Start reading at `backend.py`, and see docs/vllm.md.

Only modules that say so import vLLM, and only in vLLM's own virtualenv.
"""
