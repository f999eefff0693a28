"""Live web sockets, and the pulse that proves the control plane alive.

Sends what others compute. Start with `consumers.py`.
"""
