"""How much an organisation may ask for, and whose turn it is where engines are full."""
