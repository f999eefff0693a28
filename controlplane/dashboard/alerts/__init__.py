"""Alerts and the rules by which there are any."""
