"""Where the processes of the data plane keep their state, as the environment says. Standard library only."""

from collections.abc import Mapping
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def default_home(environ: Mapping[str, str], name: str) -> Path:
    """In LUMINET_HOME, in a checkout's own place for state, or in the user's."""
    if home := environ.get("LUMINET_HOME", "").strip():
        base = Path(home)
    elif (CHECKOUT / "pyproject.toml").exists():
        base = CHECKOUT / ".luminet"
    else:
        base = Path(environ.get("XDG_STATE_HOME", "").strip() or "~/.local/state") / "luminet"
    return base.expanduser().absolute() / name
