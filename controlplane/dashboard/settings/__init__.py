"""Settings: prices, tokens, agent groups, quality results."""
