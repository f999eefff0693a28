"""The data plane: it serves and counts. Both sides share its `contracts`; it imports nothing of the control plane."""
