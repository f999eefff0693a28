"""Agents and rollouts."""
