"""TensorBoard's event files, without TensorFlow."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path


class EventLog:
    """Writes numbers where `tensorboard --logdir DIRECTORY` finds them.

    Raises:
        ValueError: The package tensorboard is not installed.
    """

    def __init__(self, directory: str | Path):
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError:
            raise ValueError("a log for TensorBoard needs its package: pip install tensorboard.") from None
        self._event, self._summary = Event, Summary
        Path(directory).mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self._file = (Path(directory) / name).open("wb")
        self._records = RecordWriter(self._file)
        self._write(file_version="brain.Event:2")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Adds numbers by name for a step."""
        found = [self._summary.Value(tag=name, simple_value=float(value)) for name, value in values.items()]
        self._write(step=step, summary=self._summary(value=found))
        self._records.flush()

    def close(self) -> None:
        self._file.close()

    def _write(self, **fields) -> None:
        self._records.write(self._event(wall_time=time.time(), **fields).SerializeToString())
