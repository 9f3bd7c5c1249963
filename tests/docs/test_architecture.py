"""ARCHITECTURE.md names every folder of the project and of the package, and nothing that is not there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
TREE = re.search(r"^```\n(Snakefile.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]
OUTSIDE = ("build", "dist", "data", "logs", "node_modules")  # made by commands, as .gitignore has them


def folders(where):
    here = (
        path.name
        for path in where.iterdir()
        if path.is_dir() and not path.is_symlink() and not path.name.startswith((".", "__"))
    )
    return {name for name in here if name not in OUTSIDE and not name.endswith(".egg-info")}


def test_the_tree_names_every_folder_and_no_other():
    named = {line.split("/")[0] for line in TREE.splitlines() if re.match(r"\w+/", line)}
    assert named == folders(ROOT)
    rooms = {line.strip().split("/")[0] for line in TREE.splitlines() if re.match(r"  \w+/", line)}
    assert rooms == folders(ROOT / "afa")


def test_every_file_that_the_page_names_is_there():
    paths = re.findall(r"`([\w./]+\.(?:py|smk|md|csv|yaml|toml)|[\w/]+/)`", PAGE)
    missing = [path for path in paths if not any((ROOT / base / path).exists() for base in ("", "afa"))]
    made_by_users = {
        "unary.csv",
        "pairwise.csv",
        "dictionary.csv",
        "entities.csv",
        "elicited/",
        "values.csv",
        "labels.csv",
    }
    assert {path for path in missing if "NAME" not in path} <= made_by_users | {"summary.csv"}


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in heads}


def test_every_link_from_page_to_page_leads_to_a_file_and_a_heading():
    lost = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "config").glob("*.md")]:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            if link.startswith(("http", "mailto")):
                continue
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
                lost.append(f"{page.name}: {link}")
    assert lost == []
