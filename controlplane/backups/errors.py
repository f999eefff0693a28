"""What can go wrong with a backup, in words for who stands before it."""


class BackupProblem(Exception):
    """Nothing was changed that matters: the text says what is missing."""
