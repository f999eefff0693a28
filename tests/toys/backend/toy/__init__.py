"""Our own engine under another name, with a declaration of its own."""
