"""The control plane's Django project: it decides and remembers. It never imports torch, and never serves a token."""
