"""Rules about numbers, what fires by them, and who is told."""
