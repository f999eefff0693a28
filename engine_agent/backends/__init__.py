"""Engines behind one protocol, which is all the server needs of them. Start reading at `base.py`."""
