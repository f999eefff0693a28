"""Django's settings, the same on a laptop and in production: only the environment differs."""

import os
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from controlplane.common.logs import logging_config
from controlplane.settings.env import CHECKOUT, read_environment_or_exit

ENVIRONMENT = read_environment_or_exit(os.environ)

SECRET_KEY = ENVIRONMENT.secrets.secret_key
DEBUG = False
ALLOWED_HOSTS = list(ENVIRONMENT.allowed_hosts)
ROOT_URLCONF = "controlplane.urls"
ASGI_APPLICATION = "controlplane.asgi.application"
INSTALLED_APPS = [
    "controlplane.dashboard.support.app.SupportConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "tenants",
    "controlplane.live",
    "controlplane.fleet",
    "controlplane.analytics",
    "controlplane.rollouts",
    "controlplane.alerts",
    "controlplane.dashboard",
    *(["controlplane.demo"] if ENVIRONMENT.is_demo else []),
]
MIDDLEWARE = [
    "controlplane.web.middleware.observe",
    "controlplane.web.middleware.security_headers",
    "controlplane.api.middleware.api_answers",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "controlplane.web.middleware.StrongETagGZip",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [CHECKOUT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "builtins": ["controlplane.dashboard.templatetags.values"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "controlplane.dashboard.frame.context.frame",
            ],
        },
    }
]


def _database(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or 5432),
        # Under ASGI a connection must not outlive its request; the pool makes new ones cheap.
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": True,  # or after a restart of PostgreSQL, each old connection costs a visitor an error
        "OPTIONS": {
            "pool": {"min_size": 1, "max_size": 8, "timeout": 5},
            "connect_timeout": 5,
            # A database that vanished silently must not block a page for minutes.
            "tcp_user_timeout": 10_000,
            # Nor may the holder of a lock: a query that waits longer than a moment fails and returns its connection.
            # The server must notice a lost client, too: it keeps a session's locks as long as it believes in the
            # connection.
            "options": "-c statement_timeout=15000 -c lock_timeout=3000 "
            "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3",
            **dict(parse_qsl(parts.query)),
        },
    }


DATABASES = {"default": _database(ENVIRONMENT.database_url)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "tenants.User"
LOGIN_URL = "sign-in"
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.ScryptPasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS: list[dict[str, Any]] = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

SESSION_ENGINE = "tenants.sessions"
SESSION_COOKIE_AGE = 12 * 3600
SESSION_SAVE_EVERY_REQUEST = False
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_NAME = "luminet_session"
SESSION_COOKIE_SECURE = ENVIRONMENT.is_https
CSRF_COOKIE_SECURE = ENVIRONMENT.is_https
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_NAME = "luminet_csrf"
CSRF_TRUSTED_ORIGINS = [ENVIRONMENT.base_url]
CSRF_FAILURE_VIEW = "controlplane.dashboard.frame.problems.csrf_failure"
# TLS ends at a proxy before us; uvicorn takes the scheme from the proxies that LUMINET_TRUSTED_PROXIES names.
SECURE_SSL_REDIRECT = ENVIRONMENT.is_https
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if ENVIRONMENT.is_https else 0
# HSTS is for this host only: subdomains and the browsers' preload list are the domain owner's decision.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 * 1024 * 1024  # the maximum of any path; controlplane/api/body_limit.py comes first

LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = ENVIRONMENT.static_root
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "controlplane.settings.static.StaticStorage"},
}
WHITENOISE_MAX_AGE = 300

LOGGING_CONFIG = "logging.config.dictConfig"
LOGGING = logging_config(log_format=ENVIRONMENT.log_format, level=ENVIRONMENT.log_level)

CHANNEL_LAYERS = {
    "default": {
        # The pub/sub layer: no per-message keys, no 60 s expiry, less CPU than the core layer at 500 sockets.
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [ENVIRONMENT.redis_url], "prefix": "luminet:live"},
    }
}

# Longer than the longest task: a message is handed to a second worker once this has passed.
VISIBILITY_TIMEOUT_SECONDS = 60
CELERY_BROKER_URL = ENVIRONMENT.redis_url
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": VISIBILITY_TIMEOUT_SECONDS,
    "unacked_restore_interval": 2,
    "unacked_restore_throttle": 1,
    "priority_steps": list(range(10)),
    "queue_order_strategy": "priority",
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 25,
}
CELERY_TASK_DEFAULT_QUEUE = "control"
CELERY_TASK_DEFAULT_PRIORITY = 5  # Redis serves 0 first
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_RESULT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_POOL = "threads"  # control tasks wait for I/O; half the memory of prefork
CELERY_WORKER_CONCURRENCY = 4
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BEAT_SCHEDULER = "controlplane.beat:SteadyScheduler"
CELERY_BEAT_MAX_LOOP_INTERVAL = 1
CELERY_BEAT_SCHEDULE = {
    "pulse": {"task": "live.pulse", "schedule": 2.0, "options": {"expires": 10, "priority": 0}},
    # The worker's clock decides about expiry, so `expires` must exceed the difference between two machines' clocks.
    "sweep": {"task": "rollouts.sweep", "schedule": 2.0, "options": {"expires": 60, "priority": 1}},
    "roll": {"task": "analytics.roll", "schedule": 10.0, "options": {"expires": 10, "priority": 3}},
    "predict": {"task": "analytics.predict", "schedule": 10.0, "options": {"expires": 10, "priority": 7}},
    "reconcile": {"task": "analytics.reconcile", "schedule": 60.0, "options": {"expires": 60, "priority": 8}},
    "retain": {"task": "analytics.retain", "schedule": 3600.0, "options": {"expires": 3600, "priority": 9}},
    "alerts": {"task": "alerts.evaluate", "schedule": 15.0, "options": {"expires": 15, "priority": 3}},
    "alert-deliveries": {"task": "alerts.deliver", "schedule": 5.0, "options": {"expires": 15, "priority": 6}},
    "audit-anchor": {"task": "alerts.anchor", "schedule": 60.0, "options": {"expires": 60, "priority": 5}},
    "alert-housekeeping": {
        "task": "alerts.housekeeping",
        "schedule": 300.0,
        "options": {"expires": 300, "priority": 9},
    },
    "fleet-housekeeping": {
        "task": "fleet.housekeeping",
        "schedule": 300.0,
        "options": {"expires": 300, "priority": 9},
    },
    "housekeeping": {"task": "tenants.housekeeping", "schedule": 300.0, "options": {"expires": 300, "priority": 9}},
}
CELERY_TIMEZONE = "UTC"
