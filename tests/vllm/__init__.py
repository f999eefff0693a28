"""Real vLLM, on a CPU. What is in `inside/` runs in vLLM's own virtualenv, the rest beside real processes."""
