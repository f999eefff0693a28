"""One namespace: its numbers, why prompts miss, the linter, pins, purges and their receipts."""
