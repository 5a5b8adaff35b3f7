"""The planted faults of `tests/mutation_check.py` fit the code as it is."""

from __future__ import annotations

import pytest

from tests.mutation_check import FAULTS, ROOT, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_applies_to_one_place(fault: Fault) -> None:
    assert (ROOT / fault.file).read_text().count(fault.old) == 1
    assert fault.old != fault.new
