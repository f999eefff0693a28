"""Pages of the agents, and of the tokens with which they join."""
