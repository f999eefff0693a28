"""The demo: its data, its traffic and its experiments. Production loads none of this package."""
