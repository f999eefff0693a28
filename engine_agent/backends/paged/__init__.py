"""Our own engine behind the protocol that servers know."""
