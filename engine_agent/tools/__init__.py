"""Tools for measuring, replaying and comparing. No server imports them."""
