"""Settings: `env.py` reads the environment once, `django.py` turns it into Django's. Nothing else reads variables."""
