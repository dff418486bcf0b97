"""What a client is told when a request fails, by the kinds and codes of text-embeddings-inference."""

# Kind -> (HTTP status, the label of the metric te_request_failure).
KINDS = {
    "Empty": (400, "validation"),
    "Unauthorized": (401, "unauthorized"),
    "Validation": (422, "validation"),
    "Tokenizer": (422, "tokenization"),
    "Backend": (424, "inference"),
    "Overloaded": (429, "overloaded"),
    "Unhealthy": (503, "unhealthy"),
}


class RequestError(Exception):
    """A request that is not answered.

    Args:
        kind: One of `KINDS`.
        message: What was expected, what came, what to do. Clients read it: it names no path of the machine.
        status: The HTTP status, where it is not the kind's.
        label: The label of the metric, where it is not the kind's.
    """

    def __init__(self, kind: str, message: str, status: int | None = None, label: str | None = None):
        super().__init__(message)
        self.kind, self.message = kind, message
        self.status, self.label = status or KINDS[kind][0], label or KINDS[kind][1]


def invalid(message: str) -> RequestError:
    """The error for a field of a request that is not as expected."""
    return RequestError("Validation", message)


def too_large(message: str) -> RequestError:
    """The error for more than a limit allows."""
    return RequestError("Validation", message, status=413, label="batch_size")
