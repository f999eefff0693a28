"""Pages of the rollouts: the list, and one with its steps and guards."""
