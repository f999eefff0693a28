"""`make audit`: whether anything that is pinned here has a vulnerability that is known."""
