"""The database's logins, its schema and what migrations do to it."""
