"""What an engine counts, kept on disk before it is told."""
