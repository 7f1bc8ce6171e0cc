import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # tests run side by side; two processes that both take every core are slower than one

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
if "CREDENT_DATA" not in os.environ and _BESIDE.is_dir():
    os.environ["CREDENT_DATA"] = str(_BESIDE)


@pytest.fixture
def data_dir() -> Path:
    """Real data sets, for tests that want them."""
    found = os.environ.get("CREDENT_DATA")
    if not found or not Path(found).is_dir():
        pytest.skip("needs real data: set CREDENT_DATA to a directory laid out as docs/data.md says")
    return Path(found)
