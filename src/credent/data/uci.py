"""Six UCI regression sets with the 90/10 splits on which Bayesian networks are compared.

Splits: Hernandez-Lobato and Adams 2015; Gal and Ghahramani 2016. Inputs and targets are standardised by the training
rows, and `data.target_std` brings results back to the original unit:

    RMSE = target_std * RMSE(standardised),     log p(raw y) = log p(y) - log target_std

Each file `uci_regression/NAME.npz` holds X (n, d), y (n,) and test_mask (splits, n). The published protocol trains on
all 90 %, so no rows are kept for validation unless `val_share` asks for them.

Shapes: x (n, d), y (n, 1) float32.
"""

import difflib
from pathlib import Path

from credent.data.archive import read_arrays
from credent.data.dataset import Data, regression, split_rows
from credent.data.directory import data_file
from credent.errors import InputError

UCI = {
    "concrete": "compressive strength of concrete, 1,030 rows of 8",
    "energy": "heating load of buildings, 768 rows of 8",
    "kin8nm": "distance of a robot arm's end from a target, 8,192 rows of 8",
    "power-plant": "output of a power plant, 9,568 rows of 4",
    "wine-quality-red": "tasters' score of red wines, 1,599 rows of 11",
    "yacht": "residuary resistance of yachts, 308 rows of 6",
}


def uci(name: str, split: int = 0, data_dir: str | Path | None = None, seed: int = 0, val_share: float = 0.0) -> Data:
    """Split number `split` (0..19) of the set `name`, one of `UCI`; `seed` picks the validation rows."""
    if name not in UCI:
        close = difflib.get_close_matches(name, UCI, n=1)
        hint = f'Did you mean uci("{close[0]}")? ' if close else ""
        raise InputError(f"uci({name!r}): no such set. {hint}There are: {', '.join(UCI)}.")
    path = data_file(data_dir, f"uci_regression/{name}.npz")
    x, y, test_mask = read_arrays(path, "X", "y", "test_mask")
    if not 0 <= split < len(test_mask):
        raise InputError(
            f"uci({name!r}, split={split}): the splits are numbered 0 to {len(test_mask) - 1}; "
            "write split=0 for the first."
        )
    test = test_mask[split]
    x_rest, y_rest = x[~test], y[~test]
    train, val = split_rows(len(x_rest), val_share, seed)
    return regression(
        f"uci/{name}",
        train=(x_rest[train], y_rest[train]),
        val=(x_rest[val], y_rest[val]),
        test=(x[test], y[test]),
    )
