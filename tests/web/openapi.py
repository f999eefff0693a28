"""The API's description as docs/openapi.json keeps it; `python -m tests.web.openapi` (`make openapi`) writes it."""

import json
from pathlib import Path
from typing import Any

SNAPSHOT = Path(__file__).parents[2] / "docs" / "openapi.json"


def document() -> dict[str, Any]:
    from controlplane.api.openapi import openapi_document

    return openapi_document()


def snapshot_text() -> str:
    return json.dumps(document(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    import django

    django.setup()
    SNAPSHOT.write_text(snapshot_text(), encoding="utf-8")
    print(f"Wrote {SNAPSHOT}")
