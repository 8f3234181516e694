from __future__ import annotations

from appliance.engine.waiting import WaitingRoom


def test_one_request_starts_before_the_third_of_a_clients_twenty() -> None:
    room: WaitingRoom[str] = WaitingRoom()
    for number in range(20):
        room.add(f"many-{number}", 2, "many")
    room.add("single", 2, "single")

    order = [room.pop()[0] for _ in range(3)]

    assert order == ["many-0", "single", "many-1"]


def test_late_single_request_overtakes_the_rest_of_a_busy_client() -> None:
    room: WaitingRoom[str] = WaitingRoom()
    for number in range(5):
        room.add(f"many-{number}", 2, "many")
    room.pop()
    room.pop()
    room.add("single", 2, "single")

    assert room.ordered() == ["single", "many-2", "many-3", "many-4"]
    assert room.pop()[0] == "single"


def test_lower_priority_number_goes_first() -> None:
    room: WaitingRoom[str] = WaitingRoom()
    room.add("later", 3, "a")
    room.add("sooner", 2, "a")

    assert room.ordered() == ["sooner", "later"]


def test_client_that_has_nothing_left_starts_afresh() -> None:
    room: WaitingRoom[str] = WaitingRoom()
    room.add("a-1", 2, "a")
    _item, client = room.pop()
    room.done(client)
    room.add("b-1", 2, "b")
    room.add("a-2", 2, "a")
    room.add("b-2", 2, "b")

    assert room.ordered() == ["b-1", "a-2", "b-2"]


def test_requests_without_a_client_are_served_as_they_came() -> None:
    room: WaitingRoom[str] = WaitingRoom()
    for name in ("one", "two", "three"):
        room.add(name, 2, "")

    assert [room.pop()[0] for _ in range(3)] == ["one", "two", "three"]


def test_removed_request_is_gone_and_removing_again_says_so() -> None:
    room: WaitingRoom[str] = WaitingRoom()
    room.add("only", 2, "a")

    assert room.remove("only")
    assert not room.remove("only")
    assert len(room) == 0
