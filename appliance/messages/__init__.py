"""The Chinese and English sentence for every code, with the next step.

Each area keeps its table in a module of its own (``answers``, ``config``, ``engine``, ``ingest``,
``models``, ``store``, ``frontends``). A table maps a code to a ``Sentence``; ``{name}`` fields are
filled from the facts of the error. Codes are stable: scripts match them, people read the sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Literal

from appliance.errors import ApplianceError, ConfigError, Fact
from appliance.messages import answers, config, doctor, engine, frontends, ingest, models, store
from appliance.messages.sentence import Sentence

Lang = Literal["zh", "en"]
LANGS: tuple[Lang, ...] = ("zh", "en")

SENTENCES: dict[str, Sentence] = {
    **answers.SENTENCES,
    **config.SENTENCES,
    **doctor.SENTENCES,
    **engine.SENTENCES,
    **frontends.SENTENCES,
    **ingest.SENTENCES,
    **models.SENTENCES,
    **store.SENTENCES,
}


@dataclass(frozen=True)
class Explanation:
    """An error as shown to a person and to a script."""

    code: str
    message: str
    next_step: str
    facts: dict[str, Fact]

    def as_json(self) -> dict[str, object]:
        """Return the object of the ``{"error": ...}`` contract."""
        return {
            "code": self.code,
            "message": self.message,
            "next_step": self.next_step,
            "facts": self.facts,
        }

    def __str__(self) -> str:
        return f"{self.message} {self.next_step}".strip()


def sentence(code: str, lang: Lang, facts: Mapping[str, Fact] | None = None) -> Explanation:
    """Return the sentence for ``code``; an unknown code says so instead of failing."""
    facts = dict(facts or {})
    entry = SENTENCES.get(code)
    if entry is None:
        entry = SENTENCES["internal"]
        facts = {**facts, "what": code}
    what, step = (entry.zh, entry.zh_next) if lang == "zh" else (entry.en, entry.en_next)
    return Explanation(code, _fill(what, facts), _fill(step, facts), facts)


def explain(error: ApplianceError, lang: Lang) -> Explanation:
    """Return the sentence for an error; a ``ConfigError`` lists all its problems."""
    found = sentence(error.code, lang, error.facts)
    if isinstance(error, ConfigError) and error.problems:
        lines = [str(explain(problem, lang)) for problem in error.problems]
        message = "\n".join([found.message, *(f"  - {line}" for line in lines)])
        return Explanation(found.code, message, found.next_step, found.facts)
    return found


def fields_of(template: str) -> set[str]:
    """Return the fact names a sentence uses (a test compares both languages)."""
    return {name for _, name, _, _ in Formatter().parse(template) if name}


def _fill(template: str, facts: Mapping[str, Fact]) -> str:
    return template.format_map(_Missing(facts))


class _Missing(dict[str, Fact]):
    """A fact nobody gave is shown as ``?`` rather than hiding the whole sentence."""

    def __missing__(self, key: str) -> str:
        return "?"
