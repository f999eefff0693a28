"""Django's admin as the support site."""
