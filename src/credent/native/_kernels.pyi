Where = int | list[int]
Sums = tuple[float, float, float, float]
Three = tuple[int, int, int]

def energy(
    threads: int,
    sizes: list[int],
    locs: list[float],
    precisions: list[float],
    streams: tuple[Where, ...],
    numbers: tuple[float, ...],
    /,
) -> Sums: ...

pull = draw = draw_back = expand = shift = expand_back = rmsprop = drift = rooted_drift = energy

def normal(threads: int, address: int, count: int, a: int, b: int, c: int, table: int, /) -> None: ...
def moments(threads: int, h: int, rows: int, channels: int, positions: int, mean: int, variance: int, /) -> None: ...
def input_map(
    mean: int,
    variance: int,
    channels: int,
    kernel: int,
    last: bool,
    share: float,
    floor: float,
    q: float,
    means: int,
    roots: int,
    pulls: int,
    /,
) -> None: ...
def normalised_drift(
    threads: int,
    units: int,
    inputs: int,
    map: Three,
    weight: Three,
    bias: Three | tuple[()],
    unit_root: float,
    rate: float,
    scale: float,
    /,
) -> None: ...
