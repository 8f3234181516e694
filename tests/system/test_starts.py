"""The count of starts that broke off."""

from __future__ import annotations

from pathlib import Path

from appliance.system.starts import Starts, boot_id


def test_starts_that_were_killed_are_counted(tmp_path: Path) -> None:
    marker = tmp_path / "start.json"
    assert [Starts(marker, "boot").begin() for _ in range(4)] == [0, 1, 2, 3]


def test_start_that_became_steady_is_forgotten(tmp_path: Path) -> None:
    starts = Starts(tmp_path / "start.json", "boot")
    starts.begin()
    starts.begin()
    starts.finish()
    assert starts.begin() == 0


def test_power_cut_is_no_fault_of_the_box(tmp_path: Path) -> None:
    marker = tmp_path / "start.json"
    Starts(marker, "before").begin()
    assert Starts(marker, "after").begin() == 0


def test_half_a_marker_counts_as_none(tmp_path: Path) -> None:
    marker = tmp_path / "start.json"
    for content in (b"", b'{"boot": "b"', b"[1]", b'{"boot": "b", "n": null}'):
        marker.write_bytes(content)
        assert Starts(marker, "b").begin() == 0


def test_this_boot_has_a_name() -> None:
    assert boot_id() == boot_id() != ""
