"""The web process around Django: its port, limits and probes, and the middleware for every request."""
