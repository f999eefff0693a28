"""Where prompts of one namespace part, and whether what follows is the same again. Standard library, no text kept."""
