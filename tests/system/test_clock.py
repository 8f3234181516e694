from __future__ import annotations

import threading

from appliance.system.clock import Clock, ManualClock


def test_manual_clock_moves_only_when_told_or_waited_on() -> None:
    clock = ManualClock(start=100.0)

    clock.sleep(5)
    is_set = clock.wait(threading.Event(), 10)
    clock.advance(1)

    assert not is_set
    assert clock.monotonic() == clock.time() == 116.0


def test_manual_clock_does_not_wait_for_an_event_that_is_set() -> None:
    clock, event = ManualClock(start=0.0), threading.Event()
    event.set()

    assert clock.wait(event, 10)
    assert clock.monotonic() == 0.0


def test_clock_wait_returns_when_the_event_is_set() -> None:
    event = threading.Event()
    threading.Timer(0.01, event.set).start()

    assert Clock().wait(event, 10)
