"""The errors of backup and restore, worded for the operator at the terminal."""


class BackupProblem(Exception):
    """A backup or restore cannot be done. Nothing important was changed; the message says what is missing."""
