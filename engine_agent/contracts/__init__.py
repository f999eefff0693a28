"""What control plane and data plane both import: what they say to each other, and in which form. Nothing heavy."""
