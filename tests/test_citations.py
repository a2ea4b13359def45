"""Whatever page, section or file the code and the pages point to is there."""

import re
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("qevict_diag", "analyses", "figures", "cli", "benchmarks")
JUDGE = ROOT / "tests" / "reference.py"  # cites sections of the definitions alone
SOURCES = [*chain.from_iterable(sorted((ROOT / folder).rglob("*.py")) for folder in FOLDERS), JUDGE]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

PAGE = re.compile(r"\b(?:docs/)?([\w-]+\.md)\b")
SECTIONS = re.compile(r"([\w-]+\.md),\s+sections? (\d+(?:(?:-|, | and )\d+)*)")
OWN_SECTIONS = re.compile(r"(?<!paper, )\bsections? (\d+(?:(?:-|, | and )\d+)*)(?!\.\d)\b")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (\d+)\. ", re.MULTILINE)
ANCHOR = re.compile(r'<a id="([^"]+)">')


def sections(page):
    """Numbers of the numbered sections of a page."""
    return {int(number) for number in HEADING.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))}


def numbers(text):
    """The numbers in ``3``, ``5 and 6``, ``7, 8`` and ``3-7``."""
    for part in re.split(r", | and ", text):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def missing_sections(page, cited):
    return {number for text in cited for number in numbers(text)} - sections(page)


def missing_from(text):
    """Pages and sections that a text cites and that are not there."""
    pages = {name for name in PAGE.findall(text) if not (ROOT / "docs" / name).is_file()}
    cited = [(page, text) for page, text in SECTIONS.findall(text) if page not in pages]
    return pages | {(page, number) for page, text in cited for number in missing_sections(page, [text])}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_and_sections_cited_in_the_code_exist(path):
    written = {"claims.md", "table14.md"}  # by the program
    assert missing_from(path.read_text(encoding="utf-8")) - written == set()


def test_the_judge_cites_sections_that_exist():
    assert not missing_sections("definitions.md", OWN_SECTIONS.findall(JUDGE.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target, anchor in LINK.findall(path.read_text(encoding="utf-8")):
        there = path.parent / target if target else path
        assert there.exists(), target
        if re.match(r"(section|eq)-", anchor):
            assert anchor in ANCHOR.findall(there.read_text(encoding="utf-8"))


def test_a_citation_of_nothing_is_noticed():
    assert missing_from("see nowhere.md") == {"nowhere.md"}
    assert missing_from("definitions.md, sections 7 and 99") == {("definitions.md", 99)}
    assert missing_from("definitions.md,\n    section 14; docs/trace-format.md") == set()
    assert list(numbers("3-5, 7 and 9")) == [3, 4, 5, 7, 9]
