"""Real vLLM under our policies. Only what says so imports vLLM, and only in vLLM's own virtualenv; docs/vllm.md."""
