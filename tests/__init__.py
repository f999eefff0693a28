"""Claims about Luminet, each of which can fail."""
