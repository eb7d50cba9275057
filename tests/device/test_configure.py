"""Argument, else environment, else default; and the one page says what there is."""

import re
from pathlib import Path

import pytest

import callboard as cb
from callboard.device import configure
from callboard.device.config import DeviceConfig, HostConfig, defaults
from callboard.device.configure import check_environment, device_config, unknown_variables, warn_of_unknown_variables
from callboard.serve.chains.served import SERVED

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_an_argument_beats_the_environment_and_that_beats_the_default() -> None:
    environ = {"CALLBOARD_MAX_IN_FLIGHT": "7", "CALLBOARD_STANDBY": "none", "CALLBOARD_SPIN": "0.5"}
    config = device_config("thread", None, {"max_in_flight": 9}, environ)
    assert (config.max_in_flight, config.standby, config.host.spin) == (9, None, 0.5)
    assert device_config("thread", None, {}, {}).isolation == "thread"
    assert device_config("process", DeviceConfig(standby="hot"), {}, environ).max_in_flight == 65536


def test_the_lifespan_of_an_app_has_defaults_of_its_own_which_the_environment_and_arguments_beat() -> None:
    token = defaults.set(SERVED)
    try:
        config = device_config("thread", None, {}, {})
        assert (config.isolation, config.on_exhausted) == ("process", "half_open")
        environ = {"CALLBOARD_ISOLATION": "thread"}
        config = device_config("thread", None, {"on_exhausted": "stop"}, environ)
        assert (config.isolation, config.on_exhausted) == ("thread", "stop")
        assert device_config("thread", DeviceConfig(), {}, {}).on_exhausted == "stop"
    finally:
        defaults.reset(token)
    assert device_config("thread", None, {}, {}).isolation == "thread"


def test_an_unknown_option_is_named_with_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"unknown option 'isolatoin'; use one of .*isolation"):
        device_config("thread", None, {"isolatoin": "process"}, {})


def test_a_bad_value_is_named() -> None:
    with pytest.raises(ValueError, match=r"standby"):
        device_config("thread", None, {"standby": "cold"}, {})
    with pytest.raises(ValueError, match=r"max_in_flight"):
        device_config("thread", None, {}, {"CALLBOARD_MAX_IN_FLIGHT": "many"})


@pytest.mark.parametrize(
    "name, value, says",
    [
        ("standby", "hott", "standby = 'hott': use one of 'hot', 'warm', None"),
        ("completion", "poll", "completion = 'poll': use one of 'polled', 'host_fn', 'sync', None"),
        ("trace", "yes", "trace = 'yes': Expected `bool`, got `str`"),
        ("max_in_flight", 0, "max_in_flight = 0: Expected `int` >= 1"),
        ("max_staged_bytes", -1, "max_staged_bytes = -1: Expected `int` >= 1"),
        ("memory_limit", 0, "memory_limit = 0: Expected `int` >= 1"),
        ("pending_capacity", -1, "pending_capacity = -1"),
        ("max_restarts", -1, "max_restarts = -1"),
        ("within", 0, "within = 0: Expected `float` > 0.0"),
        ("hang_after", 0, "hang_after = 0"),
        ("interval", 0, "interval = 0"),
        ("interval", 30, "hang_after is 30 and interval 30: .* must be larger"),
        ("stall_after", 0, "stall_after = 0"),
        ("close_timeout", -1, "close_timeout = -1"),
        ("spin", -1, "spin = -1"),
        ("linger", -1, "linger = -1"),
        ("pooled_streams", 0, "pooled_streams = 0"),
        ("priorities", {"blas": 7}, "priorities = {'blas': 7}: Expected `int` <= 1"),
    ],
)
def test_a_value_out_of_range_is_told_with_what_fits(name: str, value: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        device_config("thread", None, {name: value}, {})


@pytest.mark.parametrize("name, value", [("priorities", {"blass": 1}), ("warm", ("memory", "blass"))])
async def test_a_library_that_is_not_there_is_told_with_those_that_are(name: str, value: object) -> None:
    async with cb.System("test") as system:
        with pytest.raises(
            ValueError, match=f"{name} names the unknown library 'blass'; use one of .*blas, blas_lt, .*fft"
        ):
            await system.device("cpu", **{name: value})


def test_the_page_lists_every_setting() -> None:
    listed = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8")))
    fields = {*DeviceConfig.__struct_fields__, *HostConfig.__struct_fields__} - {"host"}
    assert fields <= listed


def test_a_bad_value_of_the_environment_names_the_variable() -> None:
    environ = {"CALLBOARD_MAX_IN_FLIGHT": "many"}
    says = r"max_in_flight = 'many' \(set by CALLBOARD_MAX_IN_FLIGHT in the environment\): Expected `int`"
    with pytest.raises(ValueError, match=says):
        check_environment(environ)
    with pytest.raises(ValueError, match=says):
        device_config("thread", None, {}, environ)
    with pytest.raises(ValueError, match=r"max_in_flight = 0: Expected"):
        device_config("thread", None, {"max_in_flight": 0}, environ)
    with pytest.raises(ValueError, match="CALLBOARD_REQUIRE is 'gpu'; use 'cuda'"):
        check_environment({"CALLBOARD_REQUIRE": "gpu"})
    check_environment({"CALLBOARD_REQUIRE": "", "CALLBOARD_SPIN": "0.5"})


def test_settings_of_several_values_are_json_in_the_environment() -> None:
    there = {"CALLBOARD_WARM": '["blas", "fft"]', "CALLBOARD_PRIORITIES": ' {"blas": 1}'}
    config = device_config("thread", None, {}, there)
    assert (config.host.warm, config.host.priorities) == (("blas", "fft"), {"blas": 1})
    for name, text, says in (
        ("WARM", "blas,fft", r"Expected `array`, got `str`; write JSON, such as \["),
        ("WARM", "[blas]", "write JSON, such as"),
        ("PRIORITIES", "blas=1", r"Expected `object`, got `str`; write JSON, such as \{"),
    ):
        with pytest.raises(ValueError, match=f"set by CALLBOARD_{name} in the environment.*{says}"):
            device_config("thread", None, {}, {f"CALLBOARD_{name}": text})


def test_every_variable_of_the_page_is_known_and_others_are_not() -> None:
    named = set(re.findall(r"`(CALLBOARD_[A-Z_]+)`", PAGE.read_text("utf-8"))) - {"CALLBOARD_TEST_SCREENSHOTS"}
    assert len(named) >= 5
    assert unknown_variables(dict.fromkeys(named, "x")) == {}
    assert list(unknown_variables({"CALLBOARD_HOST": "x", "CALLBOARD_STANDBYE": "x", "STANDBY": "x"})) == [
        "CALLBOARD_HOST",
        "CALLBOARD_STANDBYE",
    ]


def test_an_unknown_variable_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    configure._warn.cache_clear()
    monkeypatch.setenv("CALLBOARD_STANDBYE", "hot")
    warn_of_unknown_variables()
    warn_of_unknown_variables()
    said = "environment variable CALLBOARD_STANDBYE: unknown; is CALLBOARD_STANDBY meant?"
    assert [record.getMessage() for record in caplog.records] == [said]
