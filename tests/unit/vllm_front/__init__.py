"""Our part of vLLM's own server, without vLLM."""
