"""Whether secrets are secret: who may read files, and what the settings hold. Never says what any of them is."""

import shlex
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from controlplane.doctor.finding import Finding, broken, note, ok, warning
from controlplane.settings.reader import BadSetting

FEWEST_LETTERS = 8  # different ones, of a key of 32 random bytes: fewer were made by no chance
UNANCHORED_SECONDS = 900
SECRETS = ("SECRET_KEY", "MASTER_KEY", "SIGNING_KEY", "PEPPER")


@dataclass(frozen=True, slots=True)
class FileSeen:
    path: str  # as people are shown it
    mode: int
    owner: int
    is_folder: bool = False
    may_be_passed: bool = False  # a folder of root, through which PostgreSQL's user goes to what is its own

    @property
    def wanted(self) -> int:
        if not self.is_folder:
            return 0o600
        return 0o711 if self.may_be_passed else 0o700


def files(seen: Sequence[FileSeen], *, us: int, what: str) -> list[Finding]:
    """`us`: the user who asks, to whom these are expected to belong."""
    found = [finding for one in seen for finding in _file(one, us)]
    if found or not seen:
        return found
    count = sum(not one.is_folder for one in seen)
    return [ok("files", f"{what}: {count} files with secrets are for their owner alone")]


def _file(one: FileSeen, us: int) -> list[Finding]:
    path = shlex.quote(one.path)
    extra = stat.S_IMODE(one.mode) & 0o077 & ~one.wanted
    if extra:
        deed = "written" if extra & 0o022 else "read" if not one.is_folder else "looked into"
        told = f"{one.path} can be {deed} by others (mode {stat.S_IMODE(one.mode):04o})"
        return [broken("files", told, f"chmod {one.wanted:o} {path}")]
    if one.owner not in (us, 0) and us != 0:
        told = f"{one.path} belongs to user {one.owner}, and you are {us}"
        return [warning("files", told, f"sudo chown {us} {path}")]
    return []


def writable(path: str, problem: str | None, *, name: str = "writable") -> Finding:
    if problem is None:
        return ok(name, f"{path} can be written")
    return broken(name, f"{path} cannot be written: {problem}", f"sudo chown -R $(id -un) {shlex.quote(path)}")


def settings(bad: Sequence[BadSetting]) -> list[Finding]:
    return [_setting(one) for one in bad] or [ok("settings", "Every setting that is needed is there and can be read")]


def _setting(one: BadSetting) -> Finding:
    is_secret = one.name.removeprefix("LUMINET_") in SECRETS
    fresh = "luminet secrets prints a fresh set; take the one you had before, if there is data"
    do = f"set {one.name} anew ({fresh})" if is_secret else f"correct {one.name}; docs/operations.md says what it takes"
    return broken(one.name, f"{one.name} {one.problem}", do)


def secrets(held: Mapping[str, bytes]) -> list[Finding]:
    """By the names of their variables. Two that are the same, and those that nobody made by chance."""
    found = []
    for (first, value), (second, other) in combinations(sorted(held.items()), 2):
        if value == other:
            told = f"{first} and {second} are the same: who learns one has both"
            found.append(broken("distinct", told, f"give {second} a value of its own (luminet secrets prints some)"))
    for name, value in sorted(held.items()):
        if len(set(value)) < FEWEST_LETTERS:
            do = f"make {name} anew with luminet secrets"
            found.append(broken("random", f"{name} can be guessed: it repeats a few letters", do))
    return found or [ok("distinct", f"{len(held)} secrets are there, long enough and all different")]


def master_key(opened: int, closed: int, of_the_last: int) -> Finding:
    """Of the newest keys of namespaces that lie sealed in the database."""
    name = "master-key"
    if closed:
        told = f"LUMINET_MASTER_KEY does not open {closed} of {opened + closed} keys in the database"
        do = "set LUMINET_MASTER_KEY to the one that this database was used with; its backup is apart from the data's"
        return broken(name, told, do)
    if of_the_last:
        told = f"{of_the_last} of {opened} keys in the database are still sealed with the master key of before"
        return warning(name, told, "luminet rotate-master-key")
    if not opened:
        return note(name, "There is nothing in the database yet that the master key seals")
    return ok(name, f"The master key opens what is in the database ({opened} keys looked at)")


def owner(owned: Sequence[str]) -> Finding:
    """`owned`: append-only tables whose owner is the login that is asked by."""
    if not owned:
        return ok("database-owner", "The application's login at the database can neither alter nor drop its tables")
    told = f"The application's login owns {', '.join(owned)}: it can alter and drop what it may only add to"
    do = "set LUMINET_DATABASE_OWNER_URL, then luminet run roles and luminet run migrate: docs/upgrades.md"
    return warning("database-owner", told, do)


def no_anchors() -> Finding:
    told = "LUMINET_AUDIT_ANCHOR_FILE is not set for this process: it anchors the audit trail nowhere"
    return note("anchors", f"{told}, which is well where the worker has it")


def anchors(file: Path, problems: Sequence[str], unanchored_seconds: float, *, has_begun: bool = True) -> Finding:
    if problems:
        told = f"The audit trail does not fit its anchors: {problems[0]}"
        return broken(
            "anchors", told, f"luminet audit verify --anchor {file}, and find out who can write to the database"
        )
    if unanchored_seconds > UNANCHORED_SECONDS:
        told = f"The audit trail has not been anchored for {unanchored_seconds / 60:.0f} minutes"
        return broken("anchors", told, f"see that the worker runs and can write {file}: its log has the reason")
    if not has_begun:
        return note("anchors", f"No anchor of the audit trail is in {file} yet: the worker writes one each minute")
    return ok("anchors", f"The audit trail fits its anchors in {file}")
