"""The tree of failures: a class where somebody acts differently, a code for every sentence.

An error carries a stable ``code`` and ``facts``; it never carries prose. The sentence a person
reads, in their language and with the next step, is made from the code by ``appliance.messages``
at the edge that shows it. A test demands both languages for every code used in the package.

    ApplianceError
        ConfigError
        StoreError        StoreFullError, StoreCorruptError, SchemaTooNewError
        ModelError        ModelMissingError, ModelRejectedError, DownloadError
        EngineError       ContextOverflowError, DeviceLostError, QueueFullError, EngineStoppedError
        IngestError       UnsupportedFormatError, LimitExceededError, NoTextError, ParseFailedError
        BackupError
        NotFoundError
        FrontendError     DaemonUnreachableError, BadRequestError
"""

from __future__ import annotations

from typing import ClassVar

Fact = str | int | float | bool | None

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CONFIG = 78


class ApplianceError(Exception):
    """A failure with a stable code and the facts its sentence needs.

    Args:
        code: overrides the class's ``default_code`` when one class covers several causes.
        **facts: values named in the sentence of ``appliance.messages`` for that code.
    """

    default_code: ClassVar[str] = "internal"
    exit_status: ClassVar[int] = EXIT_FAILED
    retryable: ClassVar[bool] = False

    def __init__(self, code: str | None = None, /, **facts: Fact) -> None:
        self.code = code or self.default_code
        self.facts: dict[str, Fact] = facts
        super().__init__(self.code, facts)

    def __str__(self) -> str:
        pairs = ", ".join(f"{name}={value!r}" for name, value in self.facts.items())
        return f"{self.code}({pairs})"


class ConfigError(ApplianceError):
    """The configuration cannot be used; ``problems`` lists every mistake found, not the first."""

    default_code = "config_invalid"
    exit_status = EXIT_CONFIG

    def __init__(
        self, code: str | None = None, /, problems: tuple[ApplianceError, ...] = (), **facts: Fact
    ) -> None:
        super().__init__(code, **facts)
        self.problems = problems


class StoreError(ApplianceError):
    """The knowledge base could not be read or written."""

    default_code = "store_failed"


class StoreFullError(StoreError):
    """No space is left on the device that holds the store; nothing was changed."""

    default_code = "store_full"
    retryable = True


class StoreCorruptError(StoreError):
    """The store's file failed SQLite's own check."""

    default_code = "store_corrupt"


class SchemaTooNewError(StoreError):
    """The store was written by a newer version; it is refused rather than damaged."""

    default_code = "schema_too_new"


class ModelError(ApplianceError):
    """A model's files are missing, wrong or could not be fetched."""

    default_code = "model_failed"


class ModelMissingError(ModelError):
    """The model is not in the cache."""

    default_code = "model_missing"


class ModelRejectedError(ModelError):
    """The file is not a model this build can use (header, architecture, digest, size)."""

    default_code = "model_rejected"


class DownloadError(ModelError):
    """Every source failed; what was fetched so far is kept for the next try."""

    default_code = "download_failed"
    retryable = True


class EngineError(ApplianceError):
    """Generation or embedding failed."""

    default_code = "engine_failed"


class ContextOverflowError(EngineError):
    """The prompt does not fit; facts name ``n_prompt_tokens`` and ``n_ctx``."""

    default_code = "context_overflow"


class DeviceLostError(EngineError):
    """The accelerator stopped answering; the caller may retry on the CPU."""

    default_code = "device_lost"
    retryable = True


class QueueFullError(EngineError):
    """The bounded queue is full; facts name ``n_waiting`` and ``retry_after_s``."""

    default_code = "queue_full"
    retryable = True


class EngineStoppedError(EngineError):
    """The engine is stopping or still loading."""

    default_code = "engine_stopped"
    retryable = True


class IngestError(ApplianceError):
    """One document could not be taken in; the others are untouched."""

    default_code = "ingest_failed"


class UnsupportedFormatError(IngestError):
    """No parser for this kind of file."""

    default_code = "unsupported_format"


class LimitExceededError(IngestError):
    """A limit (bytes, pages, seconds, memory, inflated bytes) was reached before the end."""

    default_code = "limit_exceeded"


class NoTextError(IngestError):
    """The file holds no text that can be read (empty, or scanned pages without a text layer)."""

    default_code = "no_text"


class ParseFailedError(IngestError):
    """The file is damaged, encrypted or not what its name says."""

    default_code = "parse_failed"


class BackupError(ApplianceError):
    """A backup could not be taken, read or restored; what was there before is untouched."""

    default_code = "backup_failed"


class NotFoundError(ApplianceError):
    """The document, conversation, model or collection asked for does not exist."""

    default_code = "not_found"


class FrontendError(ApplianceError):
    """A front end could not start or a request made no sense."""

    default_code = "frontend_failed"


class DaemonUnreachableError(FrontendError):
    """No daemon answers for this data folder."""

    default_code = "daemon_unreachable"
    retryable = True


class BadRequestError(FrontendError):
    """The request is malformed; facts name the ``field`` and what is ``allowed``."""

    default_code = "bad_request"
    exit_status = EXIT_USAGE
