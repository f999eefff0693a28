"""Rate limits of organisations, and the fair queue for engines that are full. Start with `gate.py`."""
