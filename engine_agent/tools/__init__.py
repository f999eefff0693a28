"""Tools beside the product: they measure, replay and compare. No server imports them."""
