"""Stop between two steps: the first Ctrl-C or SIGTERM is remembered until a checkpoint is written; a second acts."""

import signal
import threading
from types import FrameType, TracebackType


class Interrupt:
    """Within: signals set `requested` instead of raising in the middle of a step."""

    _SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __enter__(self) -> "Interrupt":
        self.requested = False
        self._own = {}
        if threading.current_thread() is threading.main_thread():  # Python lets only this one handle signals
            self._own = {s: signal.signal(s, self._handle) for s in self._SIGNALS}
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._own.items():
            signal.signal(number, handler)
