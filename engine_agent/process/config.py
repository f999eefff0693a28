"""The state folders of the data plane's processes, from the environment. Standard library only."""

from collections.abc import Mapping
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def default_home(environ: Mapping[str, str], name: str) -> Path:
    """Return the folder in LUMINET_HOME, in a checkout's `.luminet`, or in the user's state folder."""
    if home := environ.get("LUMINET_HOME", "").strip():
        base = Path(home)
    elif (CHECKOUT / "pyproject.toml").exists():
        base = CHECKOUT / ".luminet"
    else:
        base = Path(environ.get("XDG_STATE_HOME", "").strip() or "~/.local/state") / "luminet"
    return base.expanduser().absolute() / name
