"""A few seconds of the fuzzer; `python -m tests.fuzz --files 1000000` is the long run."""

import pytest

from tests.fuzz.checks import COURSES, Fuzzer


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Fuzzer:
    return Fuzzer(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("first", [0, 8400])  # 8486: hours of rest
def test_no_damaged_file_is_an_error_of_ours(fuzzer: Fuzzer, first: int) -> None:
    kinds = {fuzzer.check(number).kind for number in range(first, first + 400)}
    assert kinds > {"refused", *(course.__name__.strip("_") for course in COURSES)}


def test_a_number_is_always_the_same_file(fuzzer: Fuzzer) -> None:
    assert fuzzer.data(7)[:2] == fuzzer.data(7)[:2]
    assert fuzzer.data(7)[1] != fuzzer.data(8)[1]
