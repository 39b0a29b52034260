"""A few seconds of the fuzzer; `python -m tests.fuzz --files 1000000` is the long run."""

import pytest

from tests.fuzz.checks import Fuzzer


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Fuzzer:
    return Fuzzer(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("first", [0, 100, 900])  # 913: a track that rests for 2**28 ticks
def test_no_damaged_file_is_an_error_of_ours(fuzzer: Fuzzer, first: int) -> None:
    kinds = {fuzzer.check(number).kind for number in range(first, first + 100)}
    assert {"read", "refused"} < kinds


def test_a_number_is_always_the_same_file(fuzzer: Fuzzer) -> None:
    assert fuzzer.data(7)[:2] == fuzzer.data(7)[:2]
    assert fuzzer.data(7)[1] != fuzzer.data(8)[1]
