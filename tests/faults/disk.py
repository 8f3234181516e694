"""A disk that fails at the n-th statement SQLite is given, once or from then on."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from appliance.store import db as store_db

WRITES = ("INSERT", "UPDATE", "DELETE", "COMMIT", "BEGIN", "CREATE", "PRAGMA USER_VERSION")


@dataclass
class Injected:
    """How many statements that write were seen, and how many of them failed."""

    n: int = 0
    hits: int = 0


class FailingConnection(sqlite3.Connection):
    """SQLite's own connection; the chosen statement fails as on a full disk.

    ``COMMIT`` fails before SQLite sees it, as when the journal can't be written: the transaction is
    still open and has to be rolled back.
    """

    plan: Plan | None = None

    def execute(self, sql: str, *args: object) -> sqlite3.Cursor:
        self._count(sql)
        return super().execute(sql, *args)

    def executemany(self, sql: str, *args: object) -> sqlite3.Cursor:
        self._count(sql)
        return super().executemany(sql, *args)

    def _count(self, sql: str) -> None:
        plan = FailingConnection.plan
        if plan is None or not sql.lstrip().upper().startswith(WRITES):
            return
        injected = plan.injected
        injected.n += 1
        if injected.n == plan.at or (plan.is_persistent and injected.n > plan.at):
            injected.hits += 1
            raise sqlite3.OperationalError(plan.text)


@dataclass
class Plan:
    """Which statement fails, and with SQLite's words for what."""

    at: int
    is_persistent: bool
    text: str
    injected: Injected


class Faults:
    """Arms one plan at a time."""

    @contextlib.contextmanager
    def failing_call(
        self, at: int, *, persistent: bool, text: str = "database or disk is full"
    ) -> Iterator[Injected]:
        injected = Injected()
        FailingConnection.plan = Plan(at, persistent, text, injected)
        try:
            yield injected
        finally:
            FailingConnection.plan = None


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Every connection the store opens from here on can be made to fail."""
    real = sqlite3.connect

    def connect(*args: object, **kwargs: object) -> sqlite3.Connection:
        return real(*args, factory=FailingConnection, **kwargs)

    monkeypatch.setattr(store_db.sqlite3, "connect", connect)
    return Faults()
