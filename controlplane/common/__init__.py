"""What several packages of the control plane use, and what knows none of them."""
