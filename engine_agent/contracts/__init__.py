"""The messages between control plane and data plane, imported by both. No heavy imports."""
