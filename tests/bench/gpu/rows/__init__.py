"""What is built, checked and timed on a GPU. Importing a module registers its rows."""
