"""Live sockets and the pulse that proves the control plane alive. Relays what others decided; computes nothing."""
