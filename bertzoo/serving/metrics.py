"""Prometheus metrics under the names of text-embeddings-inference, so that its dashboards work."""

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = [1e-5 * 1.5**i for i in range(1, 36)]
LENGTHS = [2.0**i for i in range(17)]
SIZES = [2.0**i for i in range(13)]
PHASES = ("tokenization", "queue", "inference")

disable_created_metrics()


class Metrics(Collector):
    """Counts and times of one server.

    Args:
        queue_size: How many requests wait.
    """

    def __init__(self, queue_size: Callable[[], int]):
        self._registry = CollectorRegistry()
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self._registry.register(self)
        Gauge("te_queue_size", "Requests that wait", registry=self._registry).set_function(queue_size)
        self._histograms: dict[str, Histogram] = {}
        self.batch_size = self._histogram("te_batch_next_size", SIZES)
        self.batch_tokens = self._histogram("te_batch_next_tokens", LENGTHS)
        self.input_length = self._histogram("te_request_input_length", LENGTHS)

    def _histogram(self, name: str, buckets: list[float]) -> Histogram:
        if name not in self._histograms:
            self._histograms[name] = Histogram(name, name, buckets=buckets, registry=self._registry)
        return self._histograms[name]

    def observe_batch(self, rows: int, tokens: int) -> None:
        """Records the size of a batch."""
        self.batch_size.observe(rows)
        self.batch_tokens.observe(tokens)

    def count(self, name: str, **labels: str) -> None:
        """Adds 1 to the counter `te_{name}`. Called on the event loop."""
        self._counts[f"te_{name}", tuple(labels.items())] += 1

    def observe_request(self, group: str, seconds: float, phases: dict[str, float]) -> None:
        """Records the time of an answered request, in all and by phase.

        Args:
            group: "embed" or "predict", which have metrics of their own; "" for others.
            seconds: The whole time.
            phases: Seconds by phase, one of `PHASES`.
        """
        for prefix in filter(None, ("te_request", group and f"te_{group}")):
            self._histogram(f"{prefix}_duration", SECONDS).observe(seconds)
            for phase in PHASES:
                self._histogram(f"{prefix}_{phase}_duration", SECONDS).observe(phases.get(phase, 0.0))

    def collect(self) -> Iterator[Metric]:
        """The counters, for the registry. `prometheus_client`'s own would be called `…_total`."""
        names = dict.fromkeys(name for name, _ in self._counts)
        for name in names:
            metric = Metric(name, name, "unknown")
            for (other, labels), value in list(self._counts.items()):
                if other == name:
                    metric.add_sample(name, dict(labels), value)
            yield metric

    def text(self) -> bytes:
        """The page that Prometheus reads."""
        return generate_latest(self._registry)
