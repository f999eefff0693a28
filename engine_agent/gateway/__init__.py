"""The front door: who asks, in which namespace, and which engine answers."""
