"""Gateways in tests: what they hold, who sends bad requests to them, and what stands in for them or for engines."""
