"""The control plane's Django project: it decides and stores. It never imports torch and never generates a token."""
