"""The rows of NUMBERS.md, a module for each subject. Importing them registers them."""
