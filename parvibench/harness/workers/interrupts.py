"""Ctrl-C once ends a run at the next safe moment; twice, at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

#: Signals that end a run; a process started by ``nohup`` ignores the last.
ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def ended_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP leave the block by ``SystemExit``, so that temporary files are removed."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    ours = [n for n in ENDING if _is_main_thread() and signal.getsignal(n) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class Interrupts:
    """Turns SIGINT, SIGTERM and SIGHUP into ``KeyboardInterrupt``, in the main thread, unless something must be finished."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._busy = self._asked = False

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, *ENDING) if _is_main_thread() else ():
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        first, self._asked = not self._asked, True
        if not (self._busy and first):
            raise KeyboardInterrupt

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """The first signal waits until the end of the block."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
        if self._asked:
            raise KeyboardInterrupt

    @contextmanager
    def suppressed(self) -> Iterator[None]:
        """A ``KeyboardInterrupt`` ends the block and goes no further; the next signal is one again."""
        try:
            yield
        except KeyboardInterrupt:
            self._asked = False
