"""The isolation canary: what one tenant has cached, another must not find, neither by count nor by time."""
