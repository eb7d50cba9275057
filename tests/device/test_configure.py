"""Argument, else environment, else default; and the one page says what there is."""

import re
from pathlib import Path

import pytest

from callboard.device.config import DeviceConfig, HostConfig
from callboard.device.configure import device_config

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_an_argument_beats_the_environment_and_that_beats_the_default() -> None:
    environ = {"CALLBOARD_MAX_IN_FLIGHT": "7", "CALLBOARD_STANDBY": "none", "CALLBOARD_SPIN": "0.5"}
    config = device_config("thread", None, {"max_in_flight": 9}, environ)
    assert (config.max_in_flight, config.standby, config.host.spin) == (9, None, 0.5)
    assert device_config("thread", None, {}, {}).isolation == "thread"
    assert device_config("process", DeviceConfig(standby="hot"), {}, environ).max_in_flight == 65536


def test_an_unknown_option_is_named_with_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"unknown option 'isolatoin'; there are .*isolation"):
        device_config("thread", None, {"isolatoin": "process"}, {})


def test_a_bad_value_is_named() -> None:
    with pytest.raises(ValueError, match=r"standby"):
        device_config("thread", None, {"standby": "cold"}, {})
    with pytest.raises(ValueError, match=r"max_in_flight"):
        device_config("thread", None, {}, {"CALLBOARD_MAX_IN_FLIGHT": "many"})


def test_the_page_lists_every_setting() -> None:
    listed = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8")))
    fields = {*DeviceConfig.__struct_fields__, *HostConfig.__struct_fields__} - {"host"}
    assert fields <= listed
