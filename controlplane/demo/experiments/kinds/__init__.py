"""The experiments of the five minutes: each a few steps, told as data, that undo themselves."""
