"""Policies at the three levels: the editor, its preview, what is published, and revisions."""
