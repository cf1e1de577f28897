"""The page of a p-sweep: what it shows, and what it leaves out."""

from pathlib import Path

from test_phase import outcome, result

from eval.phase_page import write_phase_page


def test_the_page_has_figures_table_and_notes(tmp_path: Path) -> None:
    runs = [outcome(seed, p=p, arm=f"<p={p}>") for seed in (0, 1) for p in (0.25, 0.5)]
    found = result(runs)
    page = write_phase_page(found, tmp_path / "page.html", "a & b")
    text = page.read_text(encoding="utf-8")
    assert "<h1>p-sweep: a &amp; b</h1>" in text
    assert text.count("<svg") == 2
    assert "&lt;p=0.25&gt;" in text
    assert "under the floor: runs whose" in text
    assert text.count("<tr>") == 3  # head and two points
    assert "#ffffff" not in text.split("</style>")[1]  # themes decide
    assert (
        write_phase_page(found, tmp_path / "again.html", "a & b").read_bytes() == page.read_bytes()
    )


def test_without_exponents_and_rates_there_is_the_table_alone(tmp_path: Path) -> None:
    found = result([outcome(seed, p=None, arm="base") for seed in (0, 1)])
    text = write_phase_page(found, tmp_path / "page.html", "t").read_text(encoding="utf-8")
    assert "<svg" not in text
    assert 'href="#losses"' not in text
    assert "base" in text
