"""The settings of a station: what is read, what is refused and how, and that the page explains all of it."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from dinosaur_ad.errors import InputError
from dinosaur_ad.station.config import (
    DriftConfig,
    HistoryConfig,
    PartConfig,
    QueueConfig,
    ServerConfig,
    SinkConfig,
    SourceConfig,
    StationConfig,
    TeachingConfig,
)
from dinosaur_ad.station.config_checks import check_files
from dinosaur_ad.station.config_file import read_config

PAGE = Path(__file__).parents[2] / "docs" / "station" / "config.md"


WEBHOOK = '[[sink]]\nname = "hook"\nkind = "webhook"\nurl = "https://x"\n'


def config(tmp_path: Path, text: str) -> StationConfig:
    file = tmp_path / "station.toml"
    file.write_text(text)
    return read_config(file, tmp_path / "store")


def test_without_a_file_everything_has_a_default() -> None:
    found = read_config(None, "line-3")
    assert found.store == Path("line-3")
    assert found.folder == Path("line-3-station")
    assert found.server.host == "127.0.0.1"
    assert found.sources == found.sinks == ()


def test_paths_are_relative_to_the_file_and_options_go_before_it(tmp_path: Path) -> None:
    file = tmp_path / "station.toml"
    file.write_text('store = "s"\nfolder = "f"\n[[source]]\nname = "a"\nkind = "folder"\npath = "in"\n')
    found = read_config(file)
    assert (found.store, found.folder) == (tmp_path / "s", tmp_path / "f")
    assert found.sources[0].path == tmp_path / "in"
    assert read_config(file, "other", "place").store == Path("other")
    assert read_config(file, "other", "place").folder == Path("place")


def test_values_have_the_types_that_the_settings_say(tmp_path: Path) -> None:
    text = '[history]\nkeep_days = 3\n[part]\nviews = ["top", "side"]\n[[source]]\nname = "a"\nkind = "genicam"\n'
    found = config(tmp_path, text + 'view = "top"\nsettings = {ExposureTime = 5000}\n')
    assert isinstance(found.history.keep_days, float)
    assert found.part.views == ("top", "side")
    assert found.sources[0].settings == {"ExposureTime": "5000"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[srever]\nport = 1", "no setting 'srever', did you mean server"),
        ("[server]\nprt = 1", "has no setting 'prt', did you mean port"),
        ('[server]\nport = "a"', r"\[server\] port is a whole number, got a"),
        ("[server]\nport = true", "is a whole number, got True"),
        ("[server]\nport = 99999", "between 0 and 65535"),
        ('[server]\nlanguage = "fr"', "is one of en, de"),
        ('[server]\nupload_limit = "much"', "no number of bytes"),
        ('[server]\ntls_key = "k"', "belong together"),
        ("server = 1", "is a table of settings"),
        ('[queue]\nwhen_full = "forget"', "is one of wait, drop"),
        ("[queue]\ncapacity = 0", "between 1 and 10000"),
        ('[part]\nviews = ["a", "a"]', "names a view twice"),
        ("[part]\nviews = [1]", "is a list of texts"),
        ('[source]\nname = "a"', r"Write \[\[source\]\] with two brackets"),
        ('[[source]]\nname = "a"', "needs kind"),
        ('[[source]]\nname = "a"\nkind = "fax"', "is one of folder, upload"),
        ('[[source]]\nname = "a"\nkind = "folder"', "needs path"),
        ('[[source]]\nname = "a"\nkind = "rtsp"\nurl = "http://x"', "needs url"),
        ('[[source]]\nname = "a"\nkind = "camera"\ntrigger = "mqtt"', "needs topic"),
        ('[[source]]\nname = "a"\nkind = "upload"\ntrigger = "timer"', "need no trigger"),
        ('[[source]]\nname = "a/b"\nkind = "upload"', "is no name for a source"),
        ('[[source]]\nname = "a"\nkind = "upload"\n[[source]]\nname = "a"\nkind = "upload"', "names differ"),
        ('[part]\nviews = ["top"]\n[[source]]\nname = "a"\nkind = "upload"', "needs view = one of top"),
        ('[[sink]]\nname = "a"\nkind = "mqtt"\nurl = "x"', "needs url"),
        ('[[sink]]\nname = "a"\nkind = "webhook"\nurl = "https://x"', "needs secret_file"),
        ('[[sink]]\nname = "a"\nkind = "mqtt"\nurl = "mqtt://x"\nverdicts = ["bad"]', "is one of normal"),
        ('[[sink]]\nname = "a"\nkind = "mqtt"\nurl = "mqtt://"', "names no host"),
        ('[[sink]]\nname = "a"\nkind = "mqtt"\nurl = "mqtt://x:99999"', "is no address"),
        ('[[sink]]\nname = "a"\nkind = "mqtt"\nurl = "mqtt://me:secret@x"', "write username"),
        ("[drift]\nfalse_warnings = 2", "between 1e-09 and 0.5"),
        ("[drift]\nminimum_parts = 0", "between 1 and 10000"),
        ("[server]\nrequests_a_second = 0", "between 0.1 and"),
        ("[history]\nkeep_days = -3", "keep_days lies between 0.01 and"),
        ("[history]\nkeep_days_defects = nan", "keep_days_defects lies between 0.01 and"),
        ("not toml", "are not TOML"),
    ],
)
def test_what_is_wrong_is_one_sentence_that_names_the_file(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as refused:
        config(tmp_path, text)
    assert "station.toml" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[server]\ntls_certificate = "c.pem"\ntls_key = "k.pem"', r"tls_certificate: .*c\.pem cannot be read"),
        ('[server]\ntls_certificate = "junk"\ntls_key = "junk"', "are no certificate with its key"),
        (WEBHOOK + 'secret_file = "none.key"', r"secret_file of .*'hook' in .*none\.key cannot be read"),
        (WEBHOOK + 'secret_file = "empty"', "should hold the secret_file .* but it is empty"),
        ('[[source]]\nname = "a"\nkind = "camera"\ntrigger = "present"\nempty = "e.png"', "no picture .*e.png"),
    ],
)
def test_files_that_the_settings_name_are_looked_for_before_anything_starts(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "junk").write_text("no key")
    (tmp_path / "empty").touch()
    with pytest.raises(InputError, match=sentence) as refused:
        check_files(config(tmp_path, text))
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_and_a_missing_store_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_config(tmp_path / "none.toml", "s")
    with pytest.raises(InputError, match="The store is missing; name it with --store"):
        read_config(None)


def test_the_page_names_every_setting_and_its_examples_can_be_read(tmp_path: Path) -> None:
    page = PAGE.read_text("utf-8")
    kinds = (ServerConfig, HistoryConfig, QueueConfig, PartConfig, TeachingConfig, DriftConfig, SourceConfig)
    for kind in (*kinds, SinkConfig):
        for each in fields(kind):  # type: ignore[arg-type]
            assert re.search(rf"\b{each.name}\b", page), f"{kind.__name__}.{each.name} is not explained"
    blocks = re.findall(r"```toml\n(.*?)```", page, re.S)
    found = config(tmp_path, "\n".join(blocks))
    assert found.sources[0].name == "camera-1"
    assert found.sinks[0].topic == "line-3"
    defaults = read_config(None, tmp_path / "store")
    assert (found.server, found.history, found.queue) == (defaults.server, defaults.history, defaults.queue)
    assert (found.part, found.teaching, found.drift) == (defaults.part, defaults.teaching, defaults.drift)
