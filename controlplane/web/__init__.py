"""The web process around Django: its port, its limits, its probes and what happens to every request."""
