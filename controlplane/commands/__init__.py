"""The commands of `luminet`: their tree, and those that use the database. Start at tree.py."""
