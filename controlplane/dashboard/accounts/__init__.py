"""Signing in and out, invitations, passwords, and forms that survive a session's end."""
