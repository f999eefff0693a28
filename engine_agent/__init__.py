"""The data plane: it serves and counts. Both sides share its `protocol`; it imports nothing of the control plane."""
