"""Pages of the policies at the three levels: editor, preview, publishing, and revisions."""
