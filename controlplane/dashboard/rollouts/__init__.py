"""Rollouts: all of them, and one with its steps and guards."""
