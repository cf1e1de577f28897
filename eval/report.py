"""The page: a run and its evaluation in one self-contained HTML file that needs no network."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arc_data.compiled import CompiledDataset
from arc_data.json_files import write_beside
from arc_data.manifest import check_digest
from arc_data.show import PALETTE
from eval.analyses import HEADLINE_K, STRICT, known_ranks, read_results
from eval.html import listing, markup, render_page, residual_line, short
from eval.intervals import proportion
from eval.ladder import read_ballots
from eval.page_tasks import page_tasks
from eval.plots import count_axis, draw_interval, figure, inline_svg, percent_axis
from eval.run_curves import Run, draw_curves, is_run_dir, read_run
from eval.scoring import SCORE_NAMES
from eval.voting import rank

PAGE_FILE = "report.html"
_TEMPLATE = "report.html.j2"


def find_evaluation(path: Path) -> Path | None:
    """The folder of the newest whole evaluation of a run directory that has its predictions.

    Args:
        path: The run directory.

    Returns:
        The folder; a partial evaluation only where there is no whole one; None without any.
    """
    folders = [p.parent for p in sorted(path.glob("eval/*/results.json"))]
    kept = [folder for folder in folders if find_store(folder) is not None]
    whole = [f for f in kept if not read_results(f / "results.json")["voting"]["partial"]]
    newest = whole or kept
    return newest[-1] if newest else None


def find_store(path: Path) -> Path | None:
    """The predictions store of an evaluation: ``predictions`` in its folder, or the folder."""
    places = (path / "predictions", path)
    return next((place for place in places if (place / "header.json").is_file()), None)


def write_report(
    path: str | Path,
    dataset: CompiledDataset | None,
    *,
    store: str | Path | None = None,
    out: str | Path | None = None,
) -> Path:
    """Writes the page of a run directory or of an evaluation's folder.

    Args:
        path: Either folder. Of a run directory the newest evaluation is shown.
        dataset: The data set; None only for a run that has no evaluation yet.
        store: The predictions or plain votes behind the evaluation; None: ``predictions`` in its
            folder, or the folder itself.
        out: The page; None: ``report.html`` in ``path``. It is replaced.

    Returns:
        The page's path.

    Raises:
        FileNotFoundError: If there is neither a run nor an evaluation, or no predictions.
        ValueError: If data set, predictions and results do not belong together, or the data set
            is needed and not given.
    """
    path = Path(path)
    run = read_run(path) if is_run_dir(path) else None
    folder = path if run is None else find_evaluation(path)
    results = None if folder is None else read_results(folder / "results.json")
    tasks = None
    if folder is not None and results is not None:
        if dataset is None:
            raise ValueError(f"{folder}: its data set must be given to draw tasks, found none")
        store = find_store(folder) if store is None else Path(store)
        if store is None:
            raise FileNotFoundError(f"{folder}: has no predictions store; name it")
        check_digest(results["dataset"]["manifest_sha256"], dataset)
        votes = read_ballots(store, dataset).votes
        ranking = rank(votes, results["voting"]["rule"])
        tasks = page_tasks(dataset, ranking, results)
    target = path / PAGE_FILE if out is None else Path(out)
    with write_beside(target) as file:
        file.write(render(path.resolve().name, run, results, tasks).encode("utf-8"))
    return target


def render(
    title: str,
    run: Run | None,
    results: Mapping[str, Any] | None,
    tasks: Mapping[str, Any] | None,
) -> str:
    """Renders the page.

    Args:
        title: Its title.
        run: The run, if it is one.
        results: Content of results.json, if there is an evaluation.
        tasks: From ``page_tasks``, if there is an evaluation.

    Returns:
        One HTML document with everything in it.
    """
    curves = None if run is None else draw_curves(run, lambda fig: inline_svg(fig, "curves"))
    sections = [("ladder", "Ladder", results), ("tasks", "Tasks", tasks), ("curves", "Run", curves)]
    data = None
    if tasks is not None:
        text = json.dumps({"palette": PALETTE, **tasks}, separators=(",", ":"), ensure_ascii=False)
        # In a script element only "<" could end it early.
        data = markup(text.replace("<", "\\u003c"))
    ladder = None if results is None else _ladder(results)
    return render_page(
        _TEMPLATE,
        {
            "title": title,
            "subtitle": _subtitle(run, results),
            "notes": _notes(run, results),
            "sections": [(key, label) for key, label, there in sections if there]
            + [("provenance", "Provenance")],
            "ladder": ladder and {**ladder, "figure": markup(ladder["figure"])},
            "tasks": data,
            "curves": curves and markup(curves),
            "curves_note": "Long curves are averaged to at most 600 points."
            " Intervals of the ladder: 95 % over tasks.",
            "facts": _facts(run, results),
            "records": json.dumps(_records(run, results), indent=1, ensure_ascii=False),
        },
    )


def _ladder(results: Mapping[str, Any]) -> dict[str, Any]:
    """Cards, tables and figure of the ladder, with and without pairs visible in training."""
    scores = results["scores"]
    head = str(HEADLINE_K) if str(HEADLINE_K) in scores[STRICT] else next(iter(scores[STRICT]))
    everything = f"{results['num_tasks']} tasks, {results['num_test_pairs']} test pairs"
    tables = [{"caption": f"All: {everything}", "rows": _rows(scores)}]
    cards = [_card("tasks solved (strict)", head, _shares(results)[head])]
    curves = {"all tasks": _shares(results)}
    unseen = results.get("without_seen_pairs")
    if unseen and unseen["seen"] and unseen["scores"]:
        kept = f"{unseen['num_tasks']} tasks, {unseen['num_test_pairs']} test pairs"
        caption = f"Without the {len(unseen['seen'])} test pairs visible in training: {kept}"
        tables.append({"caption": caption, "rows": _rows(unseen["scores"])})
        curves["without seen pairs"] = _shares(results, set(unseen["seen"]))
        cards.append(_card("without seen pairs", head, curves["without seen pairs"][head]))
    for name, label in zip(SCORE_NAMES[1:], ("fraction", "test pairs"), strict=True):
        value = f"{scores[name][head]:.1f} %"
        cards.append({"value": value, "label": f"{label}, K = {head}", "detail": name})
    return {"cards": cards, "tables": tables, "figure": _ladder_figure(curves)}


def _card(label: str, k: str, share: Mapping[str, Any]) -> dict[str, str]:
    low, high = share["interval"]
    hits, total = share["hits"], share["total"]
    return {
        "value": f"{share['percent']:.1f} %",
        "label": f"{label}, K = {k}",
        "detail": f"{hits} of {total}; {low:.0f} to {high:.0f} %, 95 % over tasks",
    }


def _rows(scores: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    return [[k, *(f"{scores[name][k]:.2f}" for name in SCORE_NAMES)] for k in scores[STRICT]]


def _shares(
    results: Mapping[str, Any], seen: set[str] | frozenset[str] = frozenset()
) -> dict[str, dict[str, Any]]:
    """K -> ``proportion`` of tasks solved, test pairs in ``seen`` left out."""
    left_out = {**results, "unscored": [*results["unscored"], *seen]}
    ranks = list(known_ranks(left_out).values())
    return {
        k: proportion(sum(all(r is not None and r <= int(k) for r in f) for f in ranks), len(ranks))
        for k in results["scores"][STRICT]
    }


def _ladder_figure(curves: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    with figure() as (fig, (ax,)):
        for number, (label, shares) in enumerate(curves.items()):
            places = [int(k) * 1.06**number for k in shares]
            percent = [share["percent"] for share in shares.values()]
            ends = [share["interval"] for share in shares.values()]
            draw_interval(ax, places, percent, ends, label)
        count_axis(ax, [int(k) for k in next(iter(curves.values()))], "K")
        percent_axis(ax, "tasks solved (strict), %")
        ax.set_title("95 % over tasks")
        ax.legend(loc="lower right")
        return inline_svg(fig, "ladder")


def _subtitle(run: Run | None, results: Mapping[str, Any] | None) -> str:
    parts = []
    if results is not None:
        parts.append(f"{results['split']}, {results['protocol']} protocol")
        named = {"arm": results["arm"]["name"], "seed": results["seed"]}
        named["step"] = results["checkpoint"]["step"]
        parts += [f"{key} {value}" for key, value in named.items() if value is not None]
        parts.append(f"{results['num_predictions']} predictions")
    if run is not None:
        parts.append(f"run {run.status['state']} at step {run.status['step']}")
    return "; ".join(parts)


def _notes(run: Run | None, results: Mapping[str, Any] | None) -> list[str]:
    notes = []
    if run is not None and run.status["state"] != "finished":
        error = f" ({run.status['error']})" if run.status.get("error") else ""
        notes.append(f"This run is {run.status['state']}{error}: its numbers are not final.")
    if run is not None and results is None and _loss(run) is None:
        notes.append("No evaluation with its predictions yet.")
    if results is not None and results["voting"]["partial"]:
        notes.append("Partial evaluation: tasks or variants were left out; not comparable.")
    if results is not None and results["checkpoint"]["rule"] == "best-on-test":
        notes.append("The checkpoint was chosen on the test score, which flatters it.")
    if results is not None and results["missing"]:
        notes.append(
            f"{len(results['missing'])} test pairs got no prediction; they count as wrong."
        )
    return notes


def _facts(run: Run | None, results: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """What a reader asks for first; the rest is in the records."""
    about = run.provenance if run is not None else {}
    facts: list[tuple[str, Any]] = []
    if results is not None:
        dataset, checkpoint, voting = results["dataset"], results["checkpoint"], results["voting"]
        facts += [
            ("data set", f"{dataset['name']}, digest {short(dataset['manifest_sha256'])}"),
            ("split, protocol", f"{results['split']}, {results['protocol']}"),
            ("run", checkpoint["run"]),
            ("step", checkpoint["step"]),
            ("weights", checkpoint["weights"]),
            ("weights' sha256", checkpoint["sha256"] and short(checkpoint["sha256"])),
            ("checkpoint rule", checkpoint["rule"]),
            ("voting", f"{voting['rule']}, halting {voting['halting']}"),
            ("variants", f"{voting['num_aug']} besides the original"),
            ("puzzle ids", voting["puzzle_id"]),
            ("sources", ", ".join(voting["sources"])),
        ]
    elif "dataset" in about:
        dataset = about["dataset"]
        facts.append(("data set", f"{dataset['name']}, digest {short(dataset['digest'])}"))
    if run is not None and (loss := _loss(run)) is not None:
        facts += _loss_facts(loss)
    arm = results["arm"] if results is not None else about.get("arm")
    if arm:
        facts.append(("arm", arm["name"]))
        facts.append(("arm's digest", arm["digest"] and short(arm["digest"])))
        facts.append(("residual", residual_line(arm.get("residual"))))
        facts.append(("gradient scope", arm.get("grad_scope")))
    if results is not None:
        facts.append(("seed", results["seed"]))
    if about:
        commit = about.get("commit")
        dirty = about.get("dirty_sha256")
        changed = f", with uncommitted changes (sha256 {short(dirty)})" if dirty else ""
        facts.append(("commit", f"{commit}{changed}" if commit else None))
        facts.append(("parameters", listing(about.get("parameters"))))
        facts.append(("back ends", listing(about.get("backends"))))
        facts.append(("hardware", listing(about.get("hardware"))))
        facts.append(("versions", listing(about.get("versions"))))
    return [(key, "not recorded" if value in (None, "") else str(value)) for key, value in facts]


def _loss(run: Run) -> dict[str, Any] | None:
    """The newest evaluation of a language model, a whole one if there is one."""
    losses = [each for each in run.evaluations if "evaluation" in each]
    whole = [each for each in losses if not each["evaluation"]["partial"]]
    return next(reversed(whole or losses), None)


def _loss_facts(results: Mapping[str, Any]) -> list[tuple[str, Any]]:
    scores = results["scores"]
    error = scores["validation_loss_se"]
    spread = "" if error is None else f" +- {error:.4f}, one standard error over documents"
    partial = " (partial)" if results["evaluation"]["partial"] else ""
    bits = scores["bits_per_byte"]
    return [
        ("validation loss", f"{scores['validation_loss']:.4f} nats per token{spread}{partial}"),
        ("unigram floor", f"{scores['unigram_floor']:.4f} nats per token"),
        *([] if bits is None else [("bits per byte", f"{bits:.4f}")]),
        (
            "validation text",
            f"{results['num_documents']} documents, {results['num_tokens']} tokens",
        ),
        ("step", results["checkpoint"]["step"]),
        ("seed", results["seed"]),
    ]


def _records(run: Run | None, results: Mapping[str, Any] | None) -> dict[str, Any]:
    records: dict[str, Any] = {}
    if results is not None:
        left_out = ("tasks", "without_seen_pairs")
        records["results"] = {k: v for k, v in results.items() if k not in left_out}
    if run is not None:
        if (loss := _loss(run)) is not None:
            records["results"] = {k: v for k, v in loss.items() if k != "documents"}
        records |= {"provenance": run.provenance, "status": run.status}
    return records
