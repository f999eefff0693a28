"""The page "Get hits": snippets, rules with the organisation's own numbers, and a test request."""
