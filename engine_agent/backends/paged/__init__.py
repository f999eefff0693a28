"""Our own engine as a backend. Start reading at `backend.py`."""
