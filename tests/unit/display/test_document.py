"""Documents in notebooks: short, and nothing of a model becomes markup."""

from __future__ import annotations

from qglow.display.blocks import Gallery, Listing, Paragraph, Picture, Section, facts, table
from qglow.display.document import Document
from qglow.display.fragment import MOST_ROWS, to_fragment
from qglow.display.html import to_html

HOSTILE = "<script>alert('x')</script> & \"quoted\" \x1b[31m"


def test_document_is_shown_without_markup_of_its_names() -> None:
    blocks = (Paragraph(HOSTILE), Listing(HOSTILE), facts([(HOSTILE, "1")]), table((HOSTILE,), [(HOSTILE,)]))
    document = Document(HOSTILE, (Section(HOSTILE, blocks),))
    for page in (document._repr_html_(), to_html(document)):
        assert "<script>" not in page and "\x1b" not in page
        assert page.count("&lt;script&gt;") >= 6


def test_long_tables_and_pictures_are_left_to_reports() -> None:
    rows = [(f"node {number}", str(number)) for number in range(1000)]
    picture = Picture("<svg></svg>", "a picture")
    section = Section(
        "Nodes", (table(("node", "place>"), rows, "All"), picture, Gallery((picture,), "pictures"))
    )
    shown = to_fragment([section])
    assert f"All; the first {MOST_ROWS} of 1000 rows" in shown and "node 11<" in shown
    assert "node 12<" not in shown and "svg" not in shown and len(shown) < 5000
    whole = to_html(Document("Report", (section,)))
    assert "node 999<" in whole and "<svg>" in whole


def test_fragment_needs_nothing_from_elsewhere_and_names_no_ground() -> None:
    shown = to_fragment([Section("Verdict", (Paragraph("good"),))])
    assert "http" not in shown and "src=" not in shown and "@import" not in shown
    assert "background: transparent" in shown and "color: inherit" in shown
    assert "body" not in shown and ":root" not in shown, "it would style the rest of the notebook"


def test_document_says_its_sections() -> None:
    document = Document("Node conv", (Section("Facts", ()), Section("Errors", ())))
    assert repr(document) == "Document('Node conv': Facts, Errors)"
