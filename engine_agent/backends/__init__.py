"""Engines behind one protocol: what the server needs of whichever computes."""
