"""One SQLite file: documents, passages, full text, vectors, jobs and conversations."""

from appliance.store.rows import (
    ConversationRow,
    DocumentRow,
    FileRow,
    ParsedMeta,
    PassageRow,
    TurnRow,
    collection_of,
    display_of,
)
from appliance.store.search import EVERYWHERE, KeywordHits, Scope, TermStat
from appliance.store.store import Store
from appliance.store.vectors import Background

__all__ = [
    "EVERYWHERE",
    "Background",
    "ConversationRow",
    "DocumentRow",
    "FileRow",
    "KeywordHits",
    "ParsedMeta",
    "PassageRow",
    "Scope",
    "Store",
    "TermStat",
    "TurnRow",
    "collection_of",
    "display_of",
]
