from __future__ import annotations

import hashlib
import json
import re
import shutil
from importlib import resources
from pathlib import Path

import pytest
import yaml

from harness.errors import UsageError
from suites.catalogue import load, read


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A copy of the shipped data files, to be spoilt."""
    with resources.as_file(resources.files("suites.catalogue") / "data") as shipped:
        return Path(shutil.copytree(shipped, tmp_path / "data"))


def spoil(file: Path, old: str, new: str) -> Path:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    return file


def complaint(data: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read(data)
    return str(caught.value)


def test_the_digest_follows_content_and_not_layout(data: Path) -> None:
    shipped = load().digest
    assert re.fullmatch(r"[0-9a-f]{64}", shipped)
    assert read(data).digest == shipped

    file = data / "taints.yaml"
    rewritten = yaml.safe_dump(yaml.safe_load(file.read_text()), sort_keys=True, width=40)
    file.write_text(f"# Another layout\n{rewritten}")
    assert read(data).digest == shipped

    spoil(data / "apf.yaml", "since: v1.34", "since: v1.35")
    assert read(data).digest != shipped


def test_the_digest_is_sha256_of_canonical_json() -> None:
    catalogue = load()
    content = [[name, json.loads(area.model_dump_json())] for name, area in catalogue.areas.items()]
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    assert catalogue.digest == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "    level: MUST\n",
            "    lvel: MUST\n",
            r"requirements\[0\].lvel \(TNT-01\): unknown key; did you mean level\?",
        ),
        ("    level: MUST\n", "", r"requirements\[0\].level \(TNT-01\): is missing$"),
        (
            "    level: MUST\n",
            "    level: must\n",
            r"requirements\[0\].level \(TNT-01\): expected 'MUST', .*, got 'must'$",
        ),
        ("[scheduler]", "[schedular]", r"owners\[0\] \(TNT-01\): expected 'apiserver', .*, got 'schedular'$"),
        ("[scheduler]", "scheduler", r"owners \(TNT-01\): input should be a valid array, got 'scheduler'$"),
        ("[scheduler]", "[]", r"requirements\[0\] \(TNT-01\): expected at least one source and one owner$"),
        (
            "[scheduler]",
            "[scheduler, scheduler]",
            r"\(TNT-01\): owners names one twice: scheduler, scheduler$",
        ),
        ("since: v1.36", "since: 1.36", r"since \(TNT-01\): expected text such as 'v1.36', got 1.36$"),
        (
            "since: v1.36",
            "since: soon",
            r"since \(TNT-01\): 'soon' is not a release; expected one such as v1.36",
        ),
        (
            "[DRADeviceTaints]",
            "[dra-taints]",
            r"gates\[0\] \(TNT-01\): string should match pattern .*'dra-taints'$",
        ),
        ("[DRADeviceTaints]", "[7]", r"gates\[0\] \(TNT-01\): input should be a valid string, got 7$"),
        ("load: true", "load: 1", r"load \(TNT-16\): input should be a valid boolean, got 1$"),
        ("kep: 5055", "kep: 5056", r"source\[0\] \(TNT-01\): KEP 5056 is unknown; expected one of 3695"),
        (
            "kep: 5055",
            "kep: '5055'",
            r"source\[0\].kep \(TNT-01\): input should be a valid integer, got '5055'$",
        ),
        (
            "{kep: 5055,",
            "{kep: 5055, pull: 1,",
            r"source\[0\] \(TNT-01\): expected exactly one of kep, docs, source",
        ),
        (
            "{kep: 5055,",
            "{cap: 5055,",
            r"source\[0\].cap \(TNT-01\): unknown key; expected kep, docs, source, pull,",
        ),
        (
            "post: S3",
            "post: S4",
            r"source\[2\] \(TNT-15\): post 'S4' is unknown; expected one of S1, S2, S3$",
        ),
        ("id: TNT-02", "id: TNT-01", r"requirements\[1\].id: TNT-01 is given twice$"),
        ("id: TNT-02", "id: TNT-03", r"requirements\[1\].id: expected TNT-02, got 'TNT-03'$"),
        ("id: TNT-01", "id: TNT-1", r"requirements\[0\].id: expected TNT-01, got 'TNT-1'$"),
        ("id: TNT-01", "id: TAI-01", r"requirements\[0\].id: expected TNT-01, got 'TAI-01'$"),
        (
            "expires: 2027-10-31",
            "expires: next year",
            r"deviations\[0\].expires \(TNT-10\): .* got 'next year'$",
        ),
        (
            "expires: 2027-10-31",
            "expires: 2027-02-30",
            r"deviations\[0\].expires \(TNT-10\): .* got '2027-02-30'$",
        ),
        (
            '">=1.36,<1.37.1"',
            '"1.37.0"',
            r"deviations\[0\].versions \(TNT-10\): '1.37.0' is not a version range",
        ),
        (
            "issue: k/k#141620",
            "isue: k/k#141620",
            r"deviations\[0\].isue \(TNT-10\): unknown key; did you mean issue\? \(and 1 more\)$",
        ),
        (
            "url: https://github.com/kubernetes/kubernetes/issues/141620",
            "url: http://x",
            r"deviations\[0\].url \(TNT-10\): string should match pattern",
        ),
        (
            "other devices allocatable.",
            "other devices allocatable",
            r"text \(TNT-15\): expected full sentences",
        ),
        (
            "    load: true",
            "    load: true\n    profile: alfa",
            r"profile \(TNT-16\): expected 'ga' or 'alpha', got 'alfa'$",
        ),
        (
            "    load: true",
            "    characterise: true",
            r"\(TNT-16\): characterise and characterise_reason go together",
        ),
        ("title: Device taints and tolerations\n", "", r"title: is missing$"),
        ("title:", "owner: me\ntitle:", r"owner: unknown key; expected title, requirements$"),
        ("    load: true", "    load: true\n    load: false", r"line \d+: key 'load' is given twice$"),
        ("title:", "2027-01-01: x\ntitle:", r"2027-01-01: unknown key; expected title, requirements$"),
        ("title: Device", "title: [Device", r"line \d+: "),
        ("title:", "7: x\ntitle:", r"line 1: key 7 is not text$"),
        ("title:", "odd: !!timestamp 2027-02-30\ntitle:", r"not valid YAML: day is out of range"),
        (
            "requirements:",
            "requirements: []\nrequirement:",
            r"requirement: unknown key; did you mean requirements\?$",
        ),
    ],
)
def test_a_slip_is_one_message_with_file_and_key(data: Path, old: str, new: str, expected: str) -> None:
    file = spoil(data / "taints.yaml", old, new)

    message = complaint(data)

    assert message.startswith(f"{file}: ")
    assert "\n" not in message
    assert re.search(expected, message), message


def test_the_alpha_profile_needs_gates(data: Path) -> None:
    spoil(data / "list-attributes.yaml", "    gates: [DRAListTypeAttributes]\n", "")

    assert "requirements[0] (LST-01): profile alpha needs the gates that it is for" in complaint(data)


def test_the_prefixes_of_an_area_follow_each_other(data: Path) -> None:
    spoil(data / "core.yaml", "id: OPT-01", "id: OPT-02")

    assert complaint(data).endswith("requirements[4].id: expected COR-05 or OPT-01, got 'OPT-02'")


def test_a_missing_file_is_named(data: Path) -> None:
    (data / "apf.yaml").unlink()

    assert complaint(data) == f"{data}: apf.yaml is missing; every area has a file"


def test_a_file_of_no_area_is_named(data: Path) -> None:
    (data / "tants.yaml").write_text("title: x\n")

    assert complaint(data).startswith(
        f"{data / 'tants.yaml'}: no area has this name; expected one of extended-resource, "
    )


@pytest.mark.parametrize(
    ("content", "expected"), [("", "the file: "), ("- 1\n", "the file: "), ("title: \xff", "")]
)
def test_a_file_that_is_no_mapping_is_named(data: Path, content: str, expected: str) -> None:
    (data / "apf.yaml").write_bytes(content.encode("latin-1"))

    assert complaint(data).startswith(f"{data / 'apf.yaml'}: {expected}")


def test_an_area_without_requirements_is_named(data: Path) -> None:
    (data / "apf.yaml").write_text("title: Nothing\nrequirements: []\n")

    assert complaint(data) == f"{data / 'apf.yaml'}: requirements: expected at least APF-01, got none"
