"""What `GET /metrics` tells, in Prometheus' text format, from a registry of the app's own.

The figures are those of `fastinfer.metrics.RunStats`, summed over requests. Acceptance by position
is two counters, so that a query can take the ratio over any span of time:
`rate(fastinfer_accepted_total[5m]) / rate(fastinfer_tested_total[5m])`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from fastinfer.events import Event
from fastinfer.http.line import Line
from fastinfer.metrics import RunStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TTFT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TPOT_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class Metrics:
    """Counts requests and runs."""

    def __init__(self, line: Line) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "fastinfer_requests", "Answers by route and status.", ("route", "status"),
            registry=registry,
        )  # fmt: skip
        self._runs = Counter(
            "fastinfer_runs", "Runs by method and how they ended.", ("method", "reason"),
            registry=registry,
        )  # fmt: skip
        self._tokens = Counter(
            "fastinfer_tokens", "Tokens generated, by origin.", ("origin",), registry=registry
        )
        self._prompt_tokens = Counter(
            "fastinfer_prompt_tokens", "Tokens of prompts read.", registry=registry
        )
        self._ttft = Histogram(
            "fastinfer_ttft_seconds", "Time to the first token, waiting for a turn aside.",
            ("method",), buckets=TTFT_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self._tpot = Histogram(
            "fastinfer_tpot_seconds", "Mean time per token after the first, of a run.",
            ("method",), buckets=TPOT_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self._tested = Counter(
            "fastinfer_tested", "Drafted tokens tested, by verifier and position in the block.",
            ("verifier", "position"), registry=registry,
        )  # fmt: skip
        self._accepted = Counter(
            "fastinfer_accepted", "Drafted tokens accepted, by verifier and position.",
            ("verifier", "position"), registry=registry,
        )  # fmt: skip
        self._gauge("fastinfer_running", "1 while a request decodes.", lambda: line.num_running)
        self._gauge("fastinfer_waiting", "Requests that wait.", lambda: line.num_waiting)

    def _gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        Gauge(name, text, registry=self._registry).set_function(value)

    def count_request(self, route: str, status: int) -> None:
        """An answer went out, or began to."""
        self._requests.labels(route, str(status)).inc()

    def watch(self, events: Iterator[Event]) -> Iterator[Event]:
        """Pass a run's events on; at its end, early or not, count what it did."""
        stats = RunStats()
        reason = "failed"
        try:
            for event in events:
                stats.add(event)
                yield event
            reason = stats.finished.reason if stats.finished else "failed"
        except GeneratorExit:
            reason = stats.finished.reason if stats.finished else "cancelled"
            raise
        finally:
            self._add(stats, reason)

    def _add(self, stats: RunStats, reason: str) -> None:
        if stats.started is None:
            return
        method = stats.started.method
        self._runs.labels(method, reason).inc()
        self._prompt_tokens.inc(stats.started.num_prompt_tokens)
        for origin, count in stats.origins.items():
            self._tokens.labels(origin.value).inc(count)
        if stats.ttft_ms is not None:
            self._ttft.labels(method).observe(stats.ttft_ms / 1000)
        if stats.tpot_ms is not None:
            self._tpot.labels(method).observe(stats.tpot_ms / 1000)
        for role, counts in stats.stages.items():
            for position, count in enumerate(counts.tested_at, 1):
                self._tested.labels(role.value, str(position)).inc(count)
            for position, count in enumerate(counts.accepted_at, 1):
                self._accepted.labels(role.value, str(position)).inc(count)

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self._registry)
