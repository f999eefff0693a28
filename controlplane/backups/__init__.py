"""Backup and restore of the control plane's database, with the epoch reset after which the fleet can trust it.

Start at doors.py, which has both commands.
"""
