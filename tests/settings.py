"""The production settings with throwaway secrets; tests/plugin.py says where the tests' servers are."""

import base64
import os
from pathlib import Path

_KEY = base64.b64encode(b"only for tests, 32 bytes, public").decode()
_DEFAULTS = {
    "LUMINET_BASE_URL": "http://localhost:8000",
    "LUMINET_ALLOWED_HOSTS": "testserver,127.0.0.1",
    "LUMINET_DATABASE_URL": "postgresql://luminet:none@127.0.0.1:1/luminet",
    "LUMINET_REDIS_URL": "redis://127.0.0.1:1/0",
    "LUMINET_SECRET_KEY": "only for tests, and long enough to pass the check: " + "x" * 20,
    "LUMINET_MASTER_KEY": _KEY,
    "LUMINET_SIGNING_KEY": _KEY,
    "LUMINET_PEPPER": _KEY,
    "LUMINET_STATIC_ROOT": str(Path(__file__).parents[1] / "controlplane" / "dashboard" / "static"),
    "LUMINET_LOG_LEVEL": "WARNING",
}
for _name, _value in _DEFAULTS.items():
    os.environ.setdefault(_name, _value)

from controlplane.settings.django import *

# One round is enough to prove that passwords are hashed; strength is scrypt's business.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
# Each test's transaction must be on the one connection pytest-django rolls back.
DATABASES["default"]["OPTIONS"].pop("pool")
