"""``GET /metrics``: the status in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

__all__ = ["CONTENT_TYPE_LATEST", "metrics_text"]

MEMORY_USES = ("resident", "own", "weights", "kv", "compute", "output")


def metrics_text(status: Mapping[str, Any]) -> bytes:
    """Return a status, as ``status_of`` makes it, as metrics; sizes in bytes, times in seconds."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Status(status))
    return generate_latest(registry)


class _Status:
    """One status as a collector."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        """Yield every metric family."""
        status = self._status
        documents, queue, work = status["documents"], status["queue"], status["work"]
        versions = {name.replace("-", "_"): text for name, text in status["versions"].items()}
        yield InfoMetricFamily("appliance", "Versions.", versions)
        is_up = status["models"]["generation"]["state"] == "ready"
        yield _gauge("up", "1 when the model answers, 0 while it loads or has failed.", is_up)
        yield _gauges(
            "problem",
            "What is wrong, one series per code.",
            "code",
            {problem["code"]: 1 for problem in status["problems"]},
        )
        yield _gauge("uptime_seconds", "Since the start.", status["uptime_s"])
        yield _gauges("answers", "Answers and questions by state.", "state", _queue(queue))
        yield _gauge("slots", "Answers that can be generated at once.", queue["slots"])
        tokens = CounterMetricFamily("appliance_tokens", "Tokens by phase.", labels=["phase"])
        tokens.add_metric(["prefill"], status["counters"]["tokens_prefilled"])
        tokens.add_metric(["decode"], status["counters"]["tokens_decoded"])
        yield tokens
        yield CounterMetricFamily(
            "appliance_texts_embedded",
            "Texts turned into vectors.",
            status["counters"]["texts_embedded"],
        )
        yield _gauges(
            "tokens_per_second",
            "Measured speed by phase; absent before the first answer.",
            "phase",
            {phase: status["speed"][f"{phase}_tok_s"] for phase in ("prefill", "decode")},
        )
        for name in ("documents", "passages", "vectors"):
            yield _gauge(name, f"{name.capitalize()} in the store.", documents[name])
        yield _gauge("files_failed", "Files that failed.", len(documents["failed"]))
        yield _gauges(
            "work_left",
            "Files to read and passages to embed.",
            "kind",
            {"files": work["n_files_waiting"], "passages": work["n_passages_waiting"]},
        )
        memory = status["memory"]
        yield _gauges(
            "memory_bytes",
            "Memory of the process by use.",
            "use",
            {use: memory.get(use) for use in MEMORY_USES},
        )
        free = memory["machine_available"]
        yield _gauge("machine_memory_available_bytes", "Free memory of the machine.", free)


def _queue(queue: Mapping[str, int]) -> dict[str, float | None]:
    return {"running": queue["running"], "waiting": queue["waiting"]}


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"appliance_{name}", about, float(value))


def _gauges(name: str, about: str, label: str, values: Mapping[str, float | None]) -> Metric:
    """Return one series per value; what is not known has none."""
    family = GaugeMetricFamily(f"appliance_{name}", about, labels=[label])
    for text, value in values.items():
        if value is not None:
            family.add_metric([text], value)
    return family
