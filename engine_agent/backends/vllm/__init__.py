"""Real vLLM under our policies. Only modules that say so import vLLM, in vLLM's own virtualenv; docs/vllm.md."""
