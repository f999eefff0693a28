"""A format and a backend as somebody else would add them, each put into a copy of the tree by the contract tests."""
