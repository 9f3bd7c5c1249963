"""The files that a new bundle starts from."""

from __future__ import annotations

import re
from pathlib import Path

from afa.bundle.format import HEADER, REQUIRED_COLUMNS, REQUIRED_FILES
from afa.errors import BundleError, Fault
from afa.files import atomic_folder

TEMPLATE = """\
# Add rows to the files beside this one, then run `afa bundle validate {folder}`: it names every fault.
#
# unary.csv: what an entity does to a feature, with values -1 (less than usual), 0 (as usual) and 1 (more).
#   drought,soil_moisture,-1
#   Above 0: tends to be 1 where the entity holds; below 0: tends to be -1. The size, in nats, says how strongly:
#   1 is usual. A row left out means nothing known.
# pairwise.csv: two features that go together within an entity. It may stay as it is.
#   drought,leaf_firmness,soil_moisture,1
#   Above 0: they deviate in one direction; below 0: in opposite ones.
# More files may be added: priors.csv (entity,log_odds), costs.csv (feature,cost; all features), aliases.csv
# (feature,alias), and features.csv with units and ranges, so that numbers can be typed (docs/bundle.md).
name: "{name}"
version: "1"
# With these lists a name that is misspelt in a row is a fault; without them it is one more entity or feature.
# entities: [drought, overwatering]
# features: [soil_moisture, leaf_firmness]
# Where it comes from, for whoever uses it:
# licence: <licence>
# provenance:
#   model: <who or what said so>
#   prompts: <how it was asked>
#   date: <when>
#   consensus: <how several answers became one>
"""


def write_template(name: str, folder: Path) -> Path:
    """Write the folder `<folder>/<name>`; a `BundleError` where the name is unfit or something is there already."""
    path = folder / name
    if not re.fullmatch(r"\w[\w-]*", name):
        raise BundleError(
            Fault("the name of a bundle", repr(name), "letters, digits, - and _", "choose another name, and --folder")
        )
    if path.exists():
        found = "a folder" if path.is_dir() else "a file"
        raise BundleError(
            Fault(str(path), found, "nothing of this name yet", "choose another name, or edit what is there")
        )
    with atomic_folder(path) as temporary:
        (temporary / HEADER).write_text(TEMPLATE.format(name=name, folder=path), encoding="utf-8")
        for file in REQUIRED_FILES:
            (temporary / file).write_text(",".join(REQUIRED_COLUMNS[file]) + "\n", encoding="utf-8")
    return path
