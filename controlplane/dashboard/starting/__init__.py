"""How to get hits, a test request, and the page of five minutes."""
