"""HTTP for engine and gateway: clients, errors, headers, events, connections. Start with `application.py`."""
