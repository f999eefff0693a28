"""Backups of the control plane's database, and how one is brought back so that the fleet can trust it."""
