"""Pages of the settings: prices, tokens, agent groups, quality results."""
