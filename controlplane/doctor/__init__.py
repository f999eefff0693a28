"""`luminet doctor`: whether an installation is well, and what to do where it is not."""
