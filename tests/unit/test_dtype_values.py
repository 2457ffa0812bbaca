"""Dtypes as values: text that copies and pickles as what it is."""

from __future__ import annotations

import copy
import pickle

import pytest

import tileops.language as T
from tileops.dtypes import DType, dtype_of


@pytest.mark.parametrize("value", [DType("float16"), dtype_of("half"), T.float16])
def test_the_text_is_plain_and_copies_have_it(value: DType) -> None:
    pickled = [pickle.loads(pickle.dumps(value, protocol)) for protocol in range(6)]
    for found in (value, copy.copy(value), copy.deepcopy(value), *pickled):
        assert found == "float16"
        assert type(found) is type(value)
        assert type(found.text) is str
        assert found.text == "float16"
