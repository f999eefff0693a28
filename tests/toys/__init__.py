"""Small things of every kind that can be added: contract tests add them to a copy of the tree and use them."""
