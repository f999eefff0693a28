"""Get hits: snippets, rules with one’s own numbers, and a test request."""
