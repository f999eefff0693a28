"""Who owns what: people, and later organisations, keys, namespaces and policies. Knows no other app of ours."""
