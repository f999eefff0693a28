"""The compose files, read and run without Docker."""
