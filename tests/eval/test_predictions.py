"""The predictions store: round trip, resuming, and one-line errors that name the shard."""

import io
import json
import zipfile

import numpy as np
import pytest

from eval.predictions import (
    FIELDS,
    PredictionsWriter,
    make_header,
    read,
    read_json_lines,
)

CANVAS = 4


def header(**changes):
    options = {
        "data_manifest_sha256": "ab" * 32,
        "canvas": CANVAS,
        "split": "mini",
        "num_aug": 8,
        "producer": {"program": "test", "versions": (1, 2)},
        "puzzle_id": "right",
        "halting": "halt_max_steps",
    }
    return make_header(**{**options, **changes})


def columns(num_rows, seed=0, task="t"):
    rng = np.random.default_rng(seed)
    return {
        "task_id": np.array([f"{task}{i}" for i in range(num_rows)]),
        "test_index": rng.integers(0, 3, num_rows).astype(np.int32),
        "dihedral": rng.integers(0, 8, num_rows).astype(np.uint8),
        "color_map": np.stack([rng.permutation(10) for _ in range(num_rows)]).astype(np.uint8),
        "segment": rng.integers(0, 16, num_rows).astype(np.int32),
        "source": np.array(["checkpoint"] * num_rows),
        "tokens": rng.integers(0, 12, (num_rows, CANVAS * CANVAS)).astype(np.uint8),
        "q_halt_logit": rng.normal(size=num_rows).astype(np.float32),
    }


def one_line(error):
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "store"
    writer = PredictionsWriter(path, header())
    writer.append(**columns(3, seed=1))
    writer.append(**columns(2, seed=2, task="a_longer_name_"))
    return path


def rewrite(shard, **changes):
    """Writes a shard again with some fields changed, added, or (None) removed."""
    with np.load(shard) as archive:
        arrays = {**{name: archive[name] for name in archive.files}, **changes}
    np.savez(shard, **{name: array for name, array in arrays.items() if array is not None})


def test_round_trip_keeps_every_row_and_type(store):
    predictions = read(store)
    first, second = columns(3, seed=1), columns(2, seed=2, task="a_longer_name_")
    assert len(predictions) == 5
    assert predictions.canvas == CANVAS
    assert predictions.header == json.loads(json.dumps(header()))
    for field in FIELDS:
        stored = getattr(predictions, field)
        np.testing.assert_array_equal(stored, np.concatenate([first[field], second[field]]))
        if stored.dtype.kind != "U":
            assert stored.dtype == first[field].dtype
    assert sorted(p.name for p in store.iterdir()) == [
        "header.json",
        "part-00000.npz",
        "part-00001.npz",
    ]


def test_reopening_counts_rows_and_adds_shards(store):
    writer = PredictionsWriter(store, header())
    assert writer.num_rows == 5
    writer.append(**columns(4, seed=3))
    assert writer.num_rows == 9
    assert len(read(store)) == 9
    assert (store / "part-00002.npz").is_file()


def test_reopening_with_another_header_names_the_key(store):
    with pytest.raises(ValueError, match=r"header\.json: num_aug must be 16 to resume, found 8"):
        PredictionsWriter(store, header(num_aug=16))


def test_a_store_without_shards_is_empty(tmp_path):
    PredictionsWriter(tmp_path / "s", header())
    predictions = read(tmp_path / "s")
    assert len(predictions) == 0
    assert predictions.tokens.shape == (0, CANVAS * CANVAS)
    assert predictions.color_map.shape == (0, 10)


def test_the_same_rows_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        PredictionsWriter(tmp_path / name, header()).append(**columns(3))
    for file in ("header.json", "part-00000.npz"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_select_keeps_rows(store):
    predictions = read(store)
    chosen = predictions.select(predictions.segment == predictions.segment[4])
    assert "a_longer_name_1" in chosen.task_id
    assert len(chosen) == int((predictions.segment == predictions.segment[4]).sum())


def test_a_half_written_shard_is_not_read(store):
    (store / ".part-00002.npz.tmp").write_bytes(b"half")
    assert len(read(store)) == 5


def test_missing_folder_and_header(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such predictions folder"):
        read(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty/header\.json: missing"):
        read(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match=r"empty/header\.json: missing"):
        PredictionsWriter(tmp_path / "empty", header())
    with pytest.raises(FileNotFoundError, match="absent: no such folder"):
        PredictionsWriter(tmp_path / "absent" / "store", header())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "other/1"}, "schema must be 'hrm_deeploop.predictions/1', found 'other/1'"),
        ({"canvas": 0}, "canvas must be a whole number in 1..255, found 0"),
        ({"canvas": 256}, "canvas must be a whole number in 1..255, found 256"),
        ({"canvas": True}, "canvas must be a whole number"),
        ({"extra": 1}, "found 'extra' missing or unknown"),
        ({"dihedral_convention": "inverse"}, "dihedral_convention must be"),
    ],
)
def test_wrong_headers_are_named(store, change, message):
    (store / "header.json").write_text(json.dumps({**header(), **change}))
    with pytest.raises(ValueError, match=r"header\.json") as error:
        read(store)
    assert message in one_line(error)


def test_header_must_be_json_objects_with_every_key(store):
    (store / "header.json").write_text("{")
    with pytest.raises(ValueError, match=r"header\.json: expected JSON in UTF-8"):
        read(store)
    (store / "header.json").write_text("[]")
    with pytest.raises(ValueError, match=r"header\.json: must be an object, found list"):
        read(store)
    short = header()
    del short["halting"]
    (store / "header.json").write_text(json.dumps(short))
    with pytest.raises(ValueError, match="found 'halting' missing or unknown"):
        read(store)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"segment": None}, "'segment' is missing"),
        ({"logits": np.zeros(2)}, "found 'logits'"),
        ({"test_index": np.zeros(2, np.int64)}, "test_index must be int32, found int64"),
        ({"task_id": np.array([b"a", b"b"])}, "task_id must be str, found bytes"),
        ({"tokens": np.zeros((2, 9), np.uint8)}, "tokens must have shape (2, 16), found (2, 9)"),
        ({"tokens": np.zeros((1, 16), np.uint8)}, "tokens must have shape (2, 16)"),
        ({"color_map": np.zeros((2, 9), np.uint8)}, "color_map must have shape (2, 10)"),
        ({"segment": np.zeros(3, np.int32)}, "segment must have shape (2,), found (3,)"),
        ({"dihedral": np.array([1, 8], np.uint8)}, "dihedral must be in 0..7, found 8 in row 1"),
        ({"color_map": np.zeros((2, 10), np.uint8)}, "color_map must be a permutation of 0..9"),
        ({"test_index": np.array([0, -1], np.int32)}, "test_index must be at least 0, found -1"),
        ({"segment": np.array([-1, 0], np.int32)}, "segment must be at least 0, found -1"),
        ({"q_halt_logit": np.array([0, np.nan], np.float32)}, "q_halt_logit must be a number"),
    ],
)
def test_wrong_shards_are_named(store, changes, message):
    rewrite(store / "part-00001.npz", **changes)
    with pytest.raises(ValueError, match=r"part-00001\.npz: ") as error:
        read(store)
    assert message in one_line(error)


def test_object_arrays_are_never_unpickled(store):
    rewrite(store / "part-00000.npz", task_id=np.array(["a", {}, "b"], dtype=object))
    with pytest.raises(ValueError, match=r"part-00000\.npz: must be a complete \.npz shard"):
        read(store)


@pytest.mark.parametrize("kept", [0, 10, 0.5, 0.9, 0.999])
def test_truncated_shards_are_named(store, kept):
    shard = store / "part-00001.npz"
    data = shard.read_bytes()
    shard.write_bytes(data[: kept if isinstance(kept, int) else int(kept * len(data))])
    with pytest.raises(ValueError, match=r"part-00001\.npz: must be a complete \.npz") as error:
        read(store)
    one_line(error)


def test_a_changed_byte_is_noticed(store):
    shard = store / "part-00000.npz"
    data = bytearray(shard.read_bytes())
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
        offset = archive.getinfo("tokens.npy").header_offset
    data[offset + 120] ^= 0xFF
    shard.write_bytes(bytes(data))
    with pytest.raises(ValueError, match=r"part-00000\.npz: must be a complete"):
        read(store)


def test_a_plain_array_is_no_shard(store):
    with open(store / "part-00001.npz", "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ValueError, match=r"part-00001\.npz: must be a complete .*a single array"):
        read(store)


def test_gaps_and_foreign_names_are_named(store):
    (store / "part-00001.npz").rename(store / "part-00003.npz")
    with pytest.raises(ValueError, match=r"part-00001\.npz: missing, while part-00003\.npz"):
        read(store)
    (store / "part-00003.npz").rename(store / "part-1.npz")
    with pytest.raises(ValueError, match=r"part-1\.npz: a shard must be named"):
        read(store)


def test_append_accepts_fitting_integers_and_refuses_the_rest(tmp_path):
    writer = PredictionsWriter(tmp_path / "s", header())
    good = columns(2)
    writer.append(**{**good, "test_index": [0, 1], "tokens": good["tokens"].astype(np.int64)})
    assert read(tmp_path / "s").test_index.dtype == np.int32
    wrong = {
        "tokens must fit uint8, found 0..300": {"tokens": np.full((2, 16), 300) * [[0], [1]]},
        "dihedral must be uint8, found float64": {"dihedral": [0.0, 1.0]},
        "source must be str": {"source": [1, 2]},
        "segment must have shape": {"segment": [0]},
        "dihedral must be in 0..7": {"dihedral": [0, 9]},
        "found 'logits'": {"logits": [0, 0]},
    }
    for message, change in wrong.items():
        with pytest.raises(ValueError, match=r"part-00001\.npz: ") as error:
            writer.append(**{**good, **change})
        assert message in one_line(error)
    del good["source"]
    with pytest.raises(ValueError, match="'source' is missing"):
        writer.append(**good)
    with pytest.raises(ValueError, match="a shard must have rows, found none"):
        writer.append(**{field: array[:0] for field, array in columns(2).items()})
    assert writer.num_rows == 2
    assert len(list((tmp_path / "s").glob("part-*"))) == 1


def test_two_writers_do_not_overwrite_each_other(store):
    one, two = PredictionsWriter(store, header()), PredictionsWriter(store, header())
    one.append(**columns(1))
    with pytest.raises(ValueError, match=r"part-00002\.npz: must not exist yet"):
        two.append(**columns(1))


def test_json_lines(tmp_path):
    path = tmp_path / "votes.jsonl"
    path.write_text('{"task": "a", "test_index": 0, "grid": [[1]]}\n\n{"task": "b"}\n')
    assert [(where, vote["task"]) for where, vote in read_json_lines(path)] == [
        (f"{path}: line 1", "a"),
        (f"{path}: line 3", "b"),
    ]
    path.write_text('{"task": "a"}\n[1]\n')
    with pytest.raises(ValueError, match="line 2 must be a JSON object, found list"):
        list(read_json_lines(path))
    path.write_text('{"task": "a"}\n\n{"task"\n')
    with pytest.raises(ValueError, match="line 3 must be a JSON object"):
        list(read_json_lines(path))
    with pytest.raises(FileNotFoundError, match="no such file"):
        list(read_json_lines(tmp_path / "absent.jsonl"))
