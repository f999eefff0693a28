"""The database's logins, its schema and the effect of migrations on it."""
