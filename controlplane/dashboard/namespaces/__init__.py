"""Pages of one namespace: its numbers, miss reasons, the prompt linter, pins, purges and their receipts."""
