"""The operations of the REST API, a module for each subject. Each parses, calls one service or selector, answers."""
