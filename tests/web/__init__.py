"""The web in tests: clients of the REST API, pages as people read them, random and bad input."""
