"""Fleets in tests: whole ones as processes, and agents, queues and rollouts without."""
