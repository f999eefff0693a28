"""Get hits: snippets, a test request; and the experiments of five minutes."""
