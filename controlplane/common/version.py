"""The installed version of Luminet."""

from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version


@cache
def version() -> str:
    try:
        return installed_version("luminet")
    except PackageNotFoundError:
        return "uninstalled"
