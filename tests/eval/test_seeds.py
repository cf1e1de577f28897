"""Pooling results over seeds, comparing two arms, and the plain-text summary."""

import copy
import json

import pytest

from eval.scoring import SCHEMA, SCORE_NAMES
from eval.seeds import format_summary, label, summarise


def result(seed, value, arm="vanilla", digest=None, second=None):
    """A result whose three scores at K = 2 are ``value`` and at K = 10 ``second``."""
    ladder = {"2": value, "10": value + 5 if second is None else second}
    return {
        "schema": SCHEMA,
        "protocol": "published",
        "split": "arc1-evaluation",
        "dataset": {"name": "arc1_concept", "manifest_sha256": "aa"},
        "voting": {
            "rule": "count",
            "halting": "halt_max_steps",
            "num_aug": 1000,
            "sources": ["final"],
            "puzzle_id": "right",
            "partial": False,
        },
        "checkpoint": {"run": "r", "step": 9, "weights": "raw", "sha256": "x", "rule": "final"},
        "seed": seed,
        "arm": {"name": arm, "digest": digest or f"digest of {arm}"},
        "scores": {name: dict(ladder) for name in SCORE_NAMES},
    }


def changed(base, field, value):
    copied = copy.deepcopy(base)
    *parents, last = field.split(".")
    place = copied
    for key in parents:
        place = place[key]
    place[last] = value
    return copied


CONTROL = [result(seed, value) for seed, value in ((0, 40.0), (1, 41.0), (2, 45.0))]
TREATED = [result(s, v, "deeploop") for s, v in ((1, 44.0), (2, 46.5), (3, 47.0), (0, 42.0))]


def test_one_arm():
    summary = summarise([result(3, 57.49), result(1, 55.37)])
    (arm,) = summary["arms"]
    assert (arm["name"], arm["seeds"], summary["top_k"]) == ("vanilla", [1, 3], ["2", "10"])
    about = arm["scores"]["task_accuracy_strict"]["2"]
    assert about["values"] == [55.37, 57.49]
    assert about["mean"] == pytest.approx(56.43, abs=1e-9)
    assert about["s"] == pytest.approx(1.499, abs=5e-4)
    assert summary["comparison"] is None
    assert summary["conditions"]["voting.num_aug"] == 1000


def test_two_arms():
    summary = summarise(CONTROL + TREATED)
    comparison = summary["comparison"]
    assert comparison["control"]["name"] == "vanilla"
    assert comparison["paired_seeds"] == [0, 1, 2]
    assert comparison["unpaired_seeds"] == {"control": [], "treatment": [3]}
    at_2 = comparison["scores"]["task_accuracy_strict"]["2"]
    assert at_2["unpaired"]["difference"] == pytest.approx(44.875 - 42)
    assert at_2["paired"]["differences"] == [2.0, 3.0, 1.5]
    assert at_2["paired"]["difference"] == pytest.approx(6.5 / 3)
    assert at_2["paired"]["sign_flip"]["p"] == 0.25
    assert at_2["paired"]["difference_over_control_s"] == pytest.approx(6.5 / 3 / 7**0.5)
    json.dumps(summary, allow_nan=False)


def test_the_order_of_the_files_does_not_matter_and_control_may_be_named():
    summary = summarise(CONTROL + TREATED)
    for control in ("vanilla", "digest of vanilla"):
        turned = summarise([*TREATED[::-1], *CONTROL[::-1]], control=control)
        assert turned["comparison"] == summary["comparison"]
        assert turned["arms"] == summary["arms"][::-1]
    flipped = summarise(CONTROL + TREATED, control="deeploop")["comparison"]
    assert flipped["scores"]["test_pair_accuracy"]["2"]["paired"]["differences"] == [-2, -3, -1.5]


def test_arms_are_told_apart_by_digest_not_name():
    same_name = [
        result(0, 40.0),
        result(0, 42.0, digest="other"),
        result(1, 41.0, arm="renamed", digest="other"),
    ]
    summary = summarise(same_name)
    assert [arm["seeds"] for arm in summary["arms"]] == [[0], [0, 1]]
    with pytest.raises(ValueError, match="control must name one arm of"):
        summarise(same_name, control="vanilla")


def test_one_run_has_no_sigma():
    summary = summarise([result(0, 40.0)])
    about = summary["arms"][0]["scores"]["task_accuracy_strict"]["2"]
    assert (about["n"], about["s"], about["s_interval"]) == (1, None, None)
    assert about["undefined"]["s"] == "needs at least 2 values"
    assert "undefined" in format_summary(summary)
    both = summarise([result(0, 40.0), result(0, 43.25, "deeploop")])
    at_2 = both["comparison"]["scores"]["task_accuracy_strict"]["2"]
    assert at_2["unpaired"]["p"] is None
    assert at_2["paired"]["t_p"] is None
    assert at_2["paired"]["difference_over_paired_s"] is None
    assert at_2["unpaired"]["difference_over_control_s"] is None


def test_a_result_without_a_seed_is_an_arm_of_its_own():
    foreign = [result(None, 50.0, "solver"), result(None, 51.0, "solver")]
    summary = summarise(foreign)
    assert [arm["seeds"] for arm in summary["arms"]] == [[None], [None]]
    assert summary["comparison"]["scores"]["test_pair_accuracy"]["2"]["paired"] is None
    assert "-: 50.00" in format_summary(summary)
    mixed = summarise([*CONTROL, result(None, 50.0)])
    assert [len(arm["seeds"]) for arm in mixed["arms"]] == [3, 1]


def test_seeds_without_a_partner_are_not_paired():
    summary = summarise([result(0, 40.0), result(1, 41.0), result(2, 43.0, "deeploop")])
    assert summary["comparison"]["paired_seeds"] == []
    assert summary["comparison"]["unpaired_seeds"] == {"control": [0, 1], "treatment": [2]}
    text = format_summary(summary)
    assert "seeds of control without a partner: [0, 1]" in text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dataset.manifest_sha256", "bb"),
        ("split", "mini"),
        ("protocol", "strict"),
        ("voting.rule", "weighted"),
        ("voting.halting", "act"),
        ("voting.num_aug", 8),
        ("voting.sources", ["other"]),
        ("voting.puzzle_id", "blank"),
        ("checkpoint.weights", "ema"),
        ("checkpoint.rule", "step"),
        ("schema", "older"),
    ],
)
def test_unequal_conditions_are_refused_with_both_values(field, value):
    other = changed(result(1, 41.0), field, value)
    with pytest.raises(ValueError, match=r"results\[1\]: ") as error:
        summarise([result(0, 40.0), other])
    text = str(error.value)
    place = result(0, 40.0)
    for key in field.split("."):
        place = place[key]
    assert field in text and repr(value) in text and repr(place) in text
    assert "\n" not in text


def test_other_refusals():
    with pytest.raises(ValueError, match=r"found \['2'\]"):
        other = result(1, 41.0)
        del other["scores"]["test_pair_accuracy"]["10"]
        summarise([result(0, 40.0), other])
    with pytest.raises(ValueError, match=r"results\[0\]: voting.partial must be false"):
        summarise([changed(result(0, 40.0), "voting.partial", True)])
    with pytest.raises(ValueError, match=r"results\[2\]: seed 0 of arm 'vanilla' must occur once"):
        summarise([result(0, 40.0), result(0, 40.0, "deeploop"), result(0, 40.0)])
    with pytest.raises(ValueError, match="at least one result"):
        summarise([])
    with pytest.raises(ValueError, match=r"results\[0\]: arm.digest is missing"):
        broken = result(0, 40.0)
        del broken["arm"]["digest"]
        summarise([broken])
    with pytest.raises(ValueError, match="schema must be"):
        summarise([changed(result(0, 40.0), "schema", "older")])
    with pytest.raises(ValueError, match="control needs exactly 2 arms, found"):
        summarise(CONTROL, control="vanilla")
    with pytest.raises(ValueError, match="control must name one arm"):
        summarise(CONTROL + TREATED, control="absent")


def test_three_arms_are_described_but_not_compared():
    summary = summarise([*CONTROL, *TREATED, result(0, 39.0, "third")])
    assert len(summary["arms"]) == 3
    assert summary["comparison"] is None


def test_text_has_the_numbers():
    text = format_summary(summarise(CONTROL + TREATED))
    lines = text.splitlines()
    assert lines[0] == "task_accuracy_strict, percent; s has n - 1"
    control = next(line for line in lines if line.startswith("vanilla "))
    assert control.split()[1:5] == ["2", "3", "42.00", "2.646"]
    assert control.endswith("0: 40.00, 1: 41.00, 2: 45.00")
    assert "deeploop - vanilla" in text
    assert "8 patterns (all patterns); with 3 seeds p cannot go below 0.25" in text
    assert "seeds of treatment without a partner: [3]" in text
    with pytest.raises(ValueError, match="score must be one of"):
        format_summary(summarise(CONTROL), "accuracy")


def test_arms_of_one_name_are_told_apart_by_digest() -> None:
    arms = [{"name": "a", "digest": "0123456789"}, {"name": "a", "digest": "abcdef0123"}]
    assert [label(arm, arms) for arm in arms] == ["a [01234567]", "a [abcdef01]"]
    assert label(arms[0], arms[:1]) == "a"
