"""The smallest of each thing that can be added to Luminet: tests add them in a copy, and count the files it takes."""
