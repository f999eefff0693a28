"""Tools for measuring, replaying and comparing. No server imports them. In most folders, start at `command.py`."""
