"""What credent must reach: the lower end of the bootstrap interval of the median ratio, by work, contender and base."""

from typing import Any

_ORDER = ("mlp", "lenet5", "resnet20", "preact_resnet18")
_PLAIN, _SGD, _SGLD, _FORWARDS = "plain, default Adam", "plain, default SGD", "credent SGLD", "as many forwards"
LIMITS: dict[tuple[str, str, str], tuple[float, ...]] = {
    ("vi", "credent", _PLAIN): (1.5, 1.08, 1.05, 1.06),
    ("vl", "credent VL", _PLAIN): (1.6, 1.5, 1.45, 1.45),
    ("samplers", "credent SGLD", _SGD): (1.75, 1.05, 1.02, 1.06),
    ("samplers", "credent pSGLD", _SGLD): (1.05, 1.05, 1.04, 1.04),
    ("samplers", "credent pSGLD, adapting", _SGLD): (1.05, 1.05, 1.04, 1.04),
    ("samplers", "credent BNP", _SGLD): (1.3, 1.15, 1.04, 1.05),
    ("samplers", "credent BNP, adapting", _SGLD): (1.3, 1.15, 1.04, 1.05),
    ("prediction", "credent", _FORWARDS): (1.35, 1.05, 1.02, 1.05),
    ("prediction", "credent, stored in memory", _FORWARDS): (1.03, 1.03, 1.02, 1.03),
    ("prediction", "credent, stored on disk", _FORWARDS): (1.03, 1.03, 1.02, 1.03),
}


def reached(groups: dict[str, Any]) -> list[tuple[str, str, str, str, float, float, str]]:
    """Rows: work, contender, base, network, lower end of the interval, limit, verdict."""
    rows = []
    for (group, name, base), limits in LIMITS.items():
        for network, limit in zip(_ORDER, limits, strict=True):
            found = groups.get(group, {}).get(network, {}).get("contenders", {}).get(name)
            if found is not None and base in found["over"]:
                low = found["over"][base]["interval"][0]
                rows.append((group, name, base, network, low, limit, "reached" if low <= limit else "missed"))
    return rows
