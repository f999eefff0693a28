"""Runs in .venv-vllm: `python -m tests.vllm.environment` makes that, and runs these."""
