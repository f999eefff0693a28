"""Django's sessions in the database under a keyed hash of their key, so that a copy of the table gives no access.

The cookie contains the key. Rows of the previous version contain the key itself, with 32 characters where a hash has
40. They remain valid until they expire, 12 hours at most, so that an upgrade or downgrade signs no user out. Such a
session is never copied: a sign-out at a web process of either version deletes its only row.
"""

import hmac
from base64 import urlsafe_b64encode
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.sessions.backends import db
from django.contrib.sessions.models import Session
from django.utils import timezone

from tenants.crypto import purpose_key

HASH_BYTES = 30  # 40 characters of base64: as wide as Django's column
CLEAR_CHARACTERS = 32  # of a key created by Django


def stored_key(key: str) -> str:
    """Return the primary key of a session's row."""
    return urlsafe_b64encode(
        hmac.digest(purpose_key("pepper", "sessions"), key.encode(), "sha256")[:HASH_BYTES]
    ).decode()


class SessionStore(db.SessionStore):
    """A session store that looks sessions up by the hash of their key and saves new ones only under it.

    The class keeps its parent's name, with which Django signs the data.
    """

    _clear_row: Session | None = None  # row of the previous version, if this session was loaded from one

    @property
    def row_key(self) -> str:
        """The primary key of this session's row."""
        self._get_session()  # type: ignore[attr-defined]  # says whether there is a row of the version before
        key = self.session_key or ""
        return key if self._clear_row is not None and self._clear_row.pk == key else stored_key(key)

    def exists(self, session_key: str) -> bool:
        return Session.objects.filter(pk__in=_rows_of(session_key)).exists()

    def delete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            Session.objects.filter(pk__in=_rows_of(key)).delete()

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        row = super().create_model_instance(data)
        assert isinstance(row, Session)
        clear = self._clear_row
        if clear is not None and clear.pk == row.session_key:
            row.expire_date = min(row.expire_date, clear.expire_date)  # use must not prolong a row with a plain key
        else:
            row.session_key = stored_key(row.session_key)
        return row

    def _get_session_from_db(self) -> Session | None:
        key = str(self.session_key)
        rows = {row.pk: row for row in Session.objects.filter(pk__in=_rows_of(key), expire_date__gt=timezone.now())}
        session = rows.get(stored_key(key)) or rows.get(key)
        self._clear_row = session if session is not None and session.pk == key else None
        if session is None:
            self._session_key = None
        return session

    async def aexists(self, session_key: str) -> bool:
        return await sync_to_async(self.exists)(session_key)

    async def adelete(self, session_key: str | None = None) -> None:
        await sync_to_async(self.delete)(session_key)

    async def acreate_model_instance(self, data: dict[str, Any]) -> Session:
        return await sync_to_async(self.create_model_instance)(data)

    async def _aget_session_from_db(self) -> Session | None:
        return await sync_to_async(self._get_session_from_db)()


def _rows_of(key: str) -> list[str]:
    """Return the possible primary keys of a session. A hash read from the table is not accepted as a key."""
    is_key = len(key) == CLEAR_CHARACTERS and key.isascii() and key.isalnum()
    return [stored_key(key), *([key] if is_key else [])]
