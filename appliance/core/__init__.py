"""What the box does, seen by every front end through one facade."""

from appliance.core.chat import Question, Turn
from appliance.core.core import DOCUMENTS_MODEL, Core
from appliance.core.events import (
    Answer,
    AnswerTimings,
    AnswerUsage,
    Citation,
    Delta,
    Evidence,
    Notice,
    Queued,
    Reading,
    TurnEvent,
)
from appliance.core.ingest import IngestWorker, Progress
from appliance.core.retrieve import Hit, SearchResult
from appliance.engine.base import (
    EngineStatus,
    Finished,
    FinishReason,
    Generation,
    GenerationEvent,
    GenerationRequest,
    Message,
    Prefilled,
    QueueUpdate,
    Sampling,
    Token,
    Usage,
)
from appliance.store import DocumentRow, FileRow, PassageRow

__all__ = [
    "DOCUMENTS_MODEL",
    "Answer",
    "AnswerTimings",
    "AnswerUsage",
    "Citation",
    "Core",
    "Delta",
    "DocumentRow",
    "EngineStatus",
    "Evidence",
    "FileRow",
    "FinishReason",
    "Finished",
    "Generation",
    "GenerationEvent",
    "GenerationRequest",
    "Hit",
    "IngestWorker",
    "Message",
    "Notice",
    "PassageRow",
    "Prefilled",
    "Progress",
    "Question",
    "QueueUpdate",
    "Queued",
    "Reading",
    "Sampling",
    "SearchResult",
    "Token",
    "Turn",
    "TurnEvent",
    "Usage",
]
