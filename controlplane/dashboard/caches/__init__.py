"""One namespace: what its cache does, why prompts miss, pins and purges."""
