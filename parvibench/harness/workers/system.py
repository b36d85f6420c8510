"""Load and memory of the machine during a run."""

import threading
import time
from typing import Self

import psutil

_EVERY_S, _MAX_ROWS = 5.0, 500


class SystemMonitor:
    """Samples the machine from a thread of its own while it is entered: 500 rows at most, thinned on long runs."""

    def __init__(self) -> None:
        #: ``seconds`` since the start, ``cpu_percent``, ``memory_mib`` in use, ``disk_write_mib`` since the start
        self.rows: list[dict[str, float]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="parvibench-system", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _sample(self) -> None:
        start, every = time.monotonic(), _EVERY_S
        psutil.cpu_percent()
        written = _written_mib()
        while not self._ended.wait(every):
            self.rows.append(
                {
                    "seconds": round(time.monotonic() - start, 1),
                    "cpu_percent": psutil.cpu_percent(),
                    "memory_mib": round(psutil.virtual_memory().used / 2**20),
                    "disk_write_mib": round(_written_mib() - written, 1),
                }
            )
            if len(self.rows) >= _MAX_ROWS:
                self.rows, every = self.rows[1::2], 2 * every


def _written_mib() -> float:
    counters = psutil.disk_io_counters()
    return counters.write_bytes / 2**20 if counters else 0.0
