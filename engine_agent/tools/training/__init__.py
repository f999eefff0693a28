"""How the demo model was made. Not installed with the wheel."""
