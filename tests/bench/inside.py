"""Calls one function with the settings of a stack's own parts: `python -m tests.bench.inside MODULE:FUNCTION JSON…`.

What it returns is printed as the last line, in JSON.
"""

import json
import os
import sys
from importlib import import_module

import django


def main(name: str, *arguments: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.django")
    django.setup()
    module, _, function = name.partition(":")
    print(json.dumps(getattr(import_module(module), function)(*map(json.loads, arguments))))


if __name__ == "__main__":
    main(*sys.argv[1:])
