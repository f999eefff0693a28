"""The test database: migrated once, emptied, filled, read as text."""
