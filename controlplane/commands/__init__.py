"""Commands that work beside the database."""
