import os
import signal
import threading

import pytest

from credent.training.interrupt import Interrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_remembered_and_the_second_acts(number):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), Interrupt() as interrupt:
        assert not interrupt.requested
        os.kill(os.getpid(), number)
        assert interrupt.requested
        os.kill(os.getpid(), number)
        pytest.fail("still here")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_other_threads_train_without_handlers():
    """Python lets only the main thread handle signals; training elsewhere must not fail for it."""
    before, found = signal.getsignal(signal.SIGTERM), []

    def work():
        with Interrupt() as interrupt:
            found.append((interrupt.requested, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(False, before)]
