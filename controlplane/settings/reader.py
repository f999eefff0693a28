"""Read typed values from an environment and collect every mistake, so that people see all of them at once."""

import base64
import binascii
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class BadSetting:
    name: str
    problem: str


class MalformedSettings(Exception):
    """One or more variables cannot be used. The message names all of them."""

    def __init__(self, bad: Iterable[BadSetting]) -> None:
        self.bad = tuple(bad)
        lines = "\n".join(f"  {setting.name}: {setting.problem}" for setting in self.bad)
        plural = "setting" if len(self.bad) == 1 else "settings"
        super().__init__(f"Luminet cannot start: {len(self.bad)} {plural} to correct\n{lines}")


class SettingsReader:
    """Reads an environment. Getters return a usable value even for a malformed variable; `finish` then raises."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._bad: list[BadSetting] = []

    def finish(self) -> None:
        if self._bad:
            raise MalformedSettings(self._bad)

    def reject(self, name: str, problem: str) -> None:
        self._bad.append(BadSetting(name, problem))

    def text(self, name: str, default: str) -> str:
        return self._environ.get(name, "").strip() or default

    def words(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        words = tuple(part.strip() for part in self._environ.get(name, "").split(",") if part.strip())
        return words or default

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name, "").lower()
        if not value:
            return default
        if value not in TRUE_WORDS | FALSE_WORDS:
            self.reject(name, f"{value!r} is neither yes nor no")
        return value in TRUE_WORDS

    def choice(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        value = self.text(name, default)
        if value not in allowed:
            self.reject(name, f"{value!r} is none of {', '.join(allowed)}")
            return default
        return value

    def number(self, name: str, default: int, *, low: int, high: int) -> int:
        value = self.text(name, str(default))
        # isdecimal accepts the digits of other scripts, and int() thousands of digits; neither is a meaningful setting.
        if not (value.isascii() and value.isdecimal() and len(value) < 10 and low <= int(value) <= high):
            self.reject(name, f"{value!r} is no whole number from {low} to {high}")
            return default
        return int(value)

    def port(self, name: str, default: int) -> int:
        return self.number(name, default, low=0 if default == 0 else 1, high=65535)

    def url(self, name: str, schemes: tuple[str, ...], default: str | None = None) -> str:
        value = self.text(name, default or "")
        if not value:
            self.reject(name, f"is required: a URL beginning with {' or '.join(f'{scheme}://' for scheme in schemes)}")
            return f"{schemes[0]}://missing"
        problem = _url_problem(value, schemes)
        if problem:
            self.reject(name, problem)
            return f"{schemes[0]}://malformed"
        return value

    def path(self, name: str, default: Path) -> Path:
        value = self.text(name, "")
        if value and "\0" in value:
            self.reject(name, "a path cannot hold a zero byte")
            return default
        return Path(value).expanduser().absolute() if value else default

    def secret(self, name: str, *, minimum_length: int) -> str:
        value = self._secret_text(name)
        if value is not None and len(value) < minimum_length:
            self.reject(name, f"has {len(value)} characters, needs at least {minimum_length}")
        return value or "malformed"

    def secret_bytes(self, name: str, *, length: int) -> bytes:
        value = self._secret_text(name)
        return bytes(length) if value is None else self._bytes(name, value, length)

    def _bytes(self, name: str, value: str, length: int) -> bytes:
        try:
            decoded = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            self.reject(name, "is not base64")
            return bytes(length)
        if len(decoded) != length:
            self.reject(name, f"decodes to {len(decoded)} bytes, needs exactly {length}")
            return bytes(length)
        return decoded

    def optional_secret_bytes(self, name: str, *, length: int) -> bytes | None:
        """Return None if neither the variable nor its file exists."""
        return self.secret_bytes(name, length=length) if self._is_given(name) else None

    def optional_secrets_bytes(self, name: str, *, length: int) -> tuple[bytes, ...]:
        """Return the comma-separated secrets; none if neither the variable nor its file exists."""
        if not self._is_given(name):
            return ()
        values = (self._secret_text(name) or "").split(",")
        return tuple(self._bytes(name, value.strip(), length) for value in values)

    def optional_text_secret(self, name: str) -> str | None:
        """Return None if neither the variable nor its file exists."""
        return self._secret_text(name) if self._is_given(name) else None

    def _is_given(self, name: str) -> bool:
        file = self._secret_path(name)
        return bool(self.text(name, "")) or (file is not None and file.is_file())

    def _secret_path(self, name: str) -> Path | None:
        directory = self.text("LUMINET_SECRETS_DIR", "")
        return Path(directory) / name.removeprefix("LUMINET_").lower() if directory else None

    def _secret_text(self, name: str) -> str | None:
        """Return the variable, else the file of that name in LUMINET_SECRETS_DIR, as Docker mounts them."""
        value = self.text(name, "")
        if value:
            return value
        file = self._secret_path(name)
        if file is None or not file.is_file():
            alternative = f" or as the file {file}" if file else ""
            self.reject(name, f"is required{alternative}; `luminet secrets` prints a fresh set")
            return None
        return self._secret_file(name, file)

    def _secret_file(self, name: str, file: Path) -> str | None:
        try:
            if os.name == "posix" and stat.S_IMODE(file.stat().st_mode) & stat.S_IWOTH:
                self.reject(name, f"everyone may write {file}; chmod it 0600")
            return file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            self.reject(name, f"cannot read {file}: {error}")
            return None


def _url_problem(value: str, schemes: tuple[str, ...]) -> str | None:
    """Return what is wrong with a URL, without its password, or None."""
    try:
        parts = urlsplit(value)
        host, scheme, _ = parts.hostname, parts.scheme, parts.port
    except ValueError as error:
        return f"is no URL: {error}"
    if scheme not in schemes:
        return f"begins with {scheme or 'nothing'}://, needs {' or '.join(f'{allowed}://' for allowed in schemes)}"
    return None if host else "names no host"
