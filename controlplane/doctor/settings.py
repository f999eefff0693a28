"""Check that settings are complete and that secrets are random and distinct. Never shows a secret."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from controlplane.doctor.context import Context
from controlplane.doctor.database import django_models
from controlplane.doctor.finding import Finding, NotExamined, broken, note, ok, warning
from controlplane.settings.env import Environment, read_environment
from controlplane.settings.reader import BadSetting, MalformedSettings
from controlplane.stack.config import StackConfig

FEWEST_LETTERS = 8  # distinct bytes in a key of 32 random bytes: one with fewer is not random
KEYS_OPENED = 20
SECRETS = ("SECRET_KEY", "MASTER_KEY", "SIGNING_KEY", "PEPPER")


def settings(context: Context) -> list[Finding]:
    return setting_findings(context.place.bad)


def setting_findings(bad: Sequence[BadSetting]) -> list[Finding]:
    findings = [_bad_setting(setting) for setting in bad]
    return findings or [ok("settings", "Every setting that is needed is there and can be read")]


def _bad_setting(bad: BadSetting) -> Finding:
    do = f"correct {bad.name}; docs/operations.md says what it takes"
    if bad.name.removeprefix("LUMINET_") in SECRETS:
        advice = "luminet secrets prints a fresh set; take the one you had before, if there is data"
        do = f"set {bad.name} anew ({advice})"
    return broken(bad.name, f"{bad.name} {bad.problem}", do)


def secrets(context: Context) -> list[Finding]:
    installation = context.place
    environment = installation.environment or _stopped_environment(installation.config)
    if environment is None:
        raise NotExamined("settings cannot be read" if installation.bad else "there are none yet")
    return secret_findings(_values(environment))


def _values(environment: Environment) -> Mapping[str, bytes]:
    secrets = environment.secrets
    values = {
        "LUMINET_SECRET_KEY": secrets.secret_key.encode(),
        "LUMINET_MASTER_KEY": secrets.master_key,
        "LUMINET_SIGNING_KEY": secrets.signing_key,
        "LUMINET_PEPPER": secrets.pepper,
        "LUMINET_METRICS_TOKEN": (environment.metrics_token or "").encode(),
        "LUMINET_PREVIOUS_MASTER_KEY": secrets.previous_master_key,
    }
    return {name: value for name, value in values.items() if value}


def _stopped_environment(config: StackConfig | None) -> Environment | None:
    """Return an environment with the secrets of a stack that does not run."""
    if config is None or not config.secrets.is_dir():
        return None
    placeholders = {
        "LUMINET_SECRETS_DIR": str(config.secrets),
        "LUMINET_BASE_URL": "http://localhost",
        "LUMINET_DATABASE_URL": "postgresql://localhost/none",
        "LUMINET_REDIS_URL": "redis://localhost/0",
    }
    try:
        return read_environment(placeholders)
    except MalformedSettings:
        return None


def secret_findings(values: Mapping[str, bytes]) -> list[Finding]:
    """Evaluate the secrets by variable name: report those that are equal and those that are not random."""
    findings = []
    for (first, value), (second, other_value) in combinations(sorted(values.items()), 2):
        if value == other_value:
            says = f"{first} and {second} are the same: who learns one has both"
            findings.append(broken("distinct", says, f"give {second} a value of its own (luminet secrets prints some)"))
    for name, value in sorted(values.items()):
        if len(set(value)) < FEWEST_LETTERS:
            do = f"make {name} anew with luminet secrets"
            findings.append(broken("random", f"{name} can be guessed: it repeats a few letters", do))
    return findings or [ok("distinct", f"{len(values)} secrets are there, long enough and all different")]


def master_key(context: Context) -> Iterator[Finding]:
    with django_models(context):
        from tenants.crypto import Unreadable, is_sealed_anew
        from tenants.models import NamespaceKey
        from tenants.services.namespace_keys import key_open

        opened = closed = previous = 0
        newest = NamespaceKey.objects.filter(retired_at=None).exclude(sealed=None).order_by("-pk")[:KEYS_OPENED]
        for key in newest:
            if key.sealed is None:
                continue
            try:
                key_open(key.namespace_id, key.epoch, key.sealed)
            except Unreadable:
                closed += 1
            else:
                opened += 1
                previous += not is_sealed_anew(key.sealed)
        yield master_key_finding(opened, closed, previous)


def master_key_finding(opened: int, closed: int, previous: int) -> Finding:
    """Evaluate the newest sealed keys of namespaces. `previous`: how many only the previous master key opened."""
    name = "master-key"
    if closed:
        says = f"LUMINET_MASTER_KEY does not open {closed} of {opened + closed} keys in the database"
        do = "set LUMINET_MASTER_KEY to the one that this database was used with; its backup is apart from the data's"
        return broken(name, says, do)
    if previous:
        says = f"{previous} of {opened} keys in the database are still sealed with the master key of before"
        return warning(name, says, "luminet rotate-master-key")
    if not opened:
        return note(name, "There is nothing in the database yet that the master key seals")
    return ok(name, f"The master key opens what is in the database ({opened} keys looked at)")
