"""A toy text as a token folder."""

from pathlib import Path

import pytest
from toy_text import toy_documents

from hrm_deeploop.looped_lm.data import TokenDataset, verify, write_tokens
from hrm_deeploop.looped_lm.tokenizer import ByteTokenizer


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> TokenDataset:
    """The toy text, named toy."""
    out = tmp_path_factory.mktemp("data") / "lm-toy"
    write_tokens(
        toy_documents(),
        out,
        name="toy",
        upstream="a test",
        tokenizer=ByteTokenizer(),
        validation_share=0.2,
    )
    return verify(out, "toy")


@pytest.fixture
def toy_dir(toy: TokenDataset) -> Path:
    """Its folder."""
    return toy.path
