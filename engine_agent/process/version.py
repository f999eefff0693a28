"""The version of Luminet. Standard library only."""

from importlib.metadata import PackageNotFoundError, version


def luminet_version() -> str:
    try:
        return version("luminet")
    except PackageNotFoundError:
        return "uninstalled"
