"""Sign-in, invitations, passwords, and the answer to a form sent after its session has ended."""
