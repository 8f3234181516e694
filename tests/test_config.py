"""The configuration file: every mistake at once, with line, what is allowed and a suggestion."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance import config
from appliance.errors import ConfigError
from appliance.messages import explain


def test_missing_file_means_defaults(tmp_path: Path) -> None:
    assert config.load(tmp_path) == config.Config(data=tmp_path)


def test_values_are_read(tmp_path: Path) -> None:
    (tmp_path / "appliance.yaml").write_text("engine:\n  n_ctx: 4096\nhttp: {port: 0}\n")

    loaded = config.load(tmp_path)

    assert loaded.engine.n_ctx == 4096
    assert loaded.http.port == 0


def test_all_mistakes_are_reported_with_their_lines(tmp_path: Path) -> None:
    text = (
        "engin:\n  n_ctx: 1\n"
        "engine:\n  n_ctxx: 5\n  n_ctx: many\n  device: gpu\n  n_slots: true\n"
        "http:\n  port: 70000\n  port: 1\n"
        "inbox: text\n"
    )

    with pytest.raises(ConfigError) as caught:
        config.parse(text, tmp_path)

    found = {(p.code, p.facts.get("line"), p.facts.get("key")) for p in caught.value.problems}
    assert found == {
        ("config_unknown_key", 1, "engin"),
        ("config_unknown_key", 4, "engine.n_ctxx"),
        ("config_bad_value", 5, "engine.n_ctx"),
        ("config_bad_value", 6, "engine.device"),
        ("config_bad_value", 7, "engine.n_slots"),
        ("config_bad_value", 9, "http.port"),
        ("config_duplicate_key", 10, "http.port"),
        ("config_bad_value", 11, "inbox"),
    }
    shown = str(explain(caught.value, "en"))
    assert "Did you mean 'engine'?" in shown
    assert "a whole number from 0 to 65535" in shown


@pytest.mark.parametrize("text", ["a: [1", "\t- x: :", "- a\n- b", "just text", "a: &x *x"])
def test_broken_yaml_is_one_clear_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        config.parse(text, tmp_path)


def test_not_utf8_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "appliance.yaml").write_bytes("engine: 中文".encode("gb18030"))

    with pytest.raises(ConfigError) as caught:
        config.load(tmp_path)

    assert caught.value.code == "config_unreadable"


@pytest.mark.parametrize("value", [".nan", ".inf", "-1", "'x'", "[]", "null"])
def test_numbers_out_of_range_are_refused(value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        config.parse(f"assistant:\n  temperature: {value}\n", tmp_path)


def test_printed_configuration_reads_back_as_itself(tmp_path: Path) -> None:
    loaded = config.parse("engine: {n_ctx: 2048}\n", tmp_path)

    assert config.parse(config.to_yaml(loaded), tmp_path) == loaded


def test_plugin_is_looked_for_in_four_places_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix, source = tmp_path / "venv", tmp_path / "source"
    monkeypatch.setattr("sys.prefix", str(prefix))
    monkeypatch.setattr("appliance.config.__file__", str(source / "appliance/config.py"))
    places = [
        source / "build/native" / config.PLUGIN_NAME,
        prefix / "lib/appliance" / config.PLUGIN_NAME,
        source / "appliance" / config.PLUGIN_NAME,
    ]
    assert config.plugin_path(config.Config(data=tmp_path)) is None

    for place in places:  # the least first: each one found hides those before it
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
        assert config.plugin_path(config.Config(data=tmp_path)) == place.resolve()

    named = config.Config(data=tmp_path, engine=config.EngineConfig(plugin="/opt/mine.so"))
    assert config.plugin_path(named) == Path("/opt/mine.so")
