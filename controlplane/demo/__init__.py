"""The demonstration: its data, its traffic and its experiments. Production loads none of it."""
