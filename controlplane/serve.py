"""Run one part of the control plane in this process, for compose, systemd and the embedded stack."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path


def run_web() -> None:
    from controlplane.database.schema import schema_fits_or_exit
    from controlplane.settings.env import read_environment_or_exit
    from controlplane.web.edge import web_serve

    environment = read_environment_or_exit(os.environ)
    schema_fits_or_exit(environment.database_url)
    if environment.shared_metrics_dir is not None:
        # prometheus-client decides at import whether several processes share a directory.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(environment.shared_metrics_dir)
        _begin_at_zero(environment.shared_metrics_dir)
    web_serve(environment)


def _begin_at_zero(metrics_dir: Path) -> None:
    """Delete the metrics of earlier processes, which would be added to this run's."""
    shutil.rmtree(metrics_dir, ignore_errors=True)
    metrics_dir.mkdir(parents=True, exist_ok=True)


def run_worker() -> None:
    import warnings

    from celery.exceptions import SecurityWarning

    from controlplane.celery import app
    from controlplane.common.health import worker_hostname
    from controlplane.database.schema import schema_fits_or_exit
    from controlplane.settings.env import read_environment_or_exit
    from engine_agent.process.allocator import allocator_bound

    allocator_bound()
    schema_fits_or_exit(read_environment_or_exit(os.environ).database_url)
    # It warns of root because pickled messages could run code as root. We accept JSON only, which cannot.
    warnings.simplefilter("ignore", SecurityWarning)
    _skip_system_checks()
    app.worker_main(
        [
            "--quiet",
            "worker",
            f"--hostname={worker_hostname()}",
            "--without-gossip",
            "--without-mingle",
            "--loglevel=INFO",
        ]
    )


def run_beat() -> None:
    from controlplane.celery import app

    _skip_system_checks()
    app.Beat(loglevel="INFO", quiet=True).run()


def _skip_system_checks() -> None:
    """Skip Django's checks: they load every page and API route, unused by worker and beat. `make lint` runs them."""
    os.environ.setdefault("CELERY_SKIP_CHECKS", "1")


def run_migrate() -> None:
    import django
    from django.core.management import call_command

    from controlplane.database.roles import RolesProblem, application_grant, owner_instead
    from controlplane.settings.env import read_environment_or_exit

    read_environment_or_exit(os.environ)
    try:
        application = owner_instead(os.environ)
    except RolesProblem as problem:
        raise SystemExit(f"luminet: {problem}") from None
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.django")
    django.setup()
    call_command("migrate", interactive=False)
    application_grant(application)
    _shipped_quality_ensure()
    _built_in_rules_ensure()
    _standing_token_renew()


def run_roles() -> None:
    from controlplane.database.roles import RolesProblem, roles_make_of

    try:
        roles_make_of(os.environ)
    except RolesProblem as problem:
        raise SystemExit(f"luminet: {problem}") from None


def _shipped_quality_ensure() -> None:
    from controlplane.fleet.shipped import shipped_quality_ensure
    from tenants.actor import SYSTEM

    shipped_quality_ensure(actor=SYSTEM)


def _built_in_rules_ensure() -> None:
    from django.utils import timezone

    from controlplane.alerts.evaluating import built_in_rules_ensure

    built_in_rules_ensure(now=timezone.now())


def _standing_token_renew() -> None:
    """Renew the environment's join token: each start makes it valid for another day."""
    from django.conf import settings
    from django.utils import timezone

    from controlplane.fleet.join_tokens import standing_token_renew
    from tenants.errors import InvalidFields

    if settings.ENVIRONMENT.join_token is None:
        return
    try:
        standing_token_renew(settings.ENVIRONMENT.join_token, now=timezone.now())
    except InvalidFields as error:
        raise SystemExit(str(error)) from None


def run_demo_traffic() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.django")
    django.setup()
    from controlplane.demo.traffic import run
    from controlplane.stack.config import read_stack_config

    raise SystemExit(run(read_stack_config(os.environ).demo_file))


PARTS: dict[str, Callable[[], None]] = {
    "web": run_web,
    "worker": run_worker,
    "beat": run_beat,
    "roles": run_roles,
    "migrate": run_migrate,
    "demo-traffic": run_demo_traffic,
}
