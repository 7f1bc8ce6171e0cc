"""The report's colours by role, light and dark, in one place: drawings name roles, and the page gives them values.

    contrast(a, b) = (L_bright + 0.05) / (L_dark + 0.05),        L = 0.2126 R + 0.7152 G + 0.0722 B in linear light

Text keeps a contrast of at least 4.5 on `page` and `card`, and lines that carry data at least 3 (WCAG 2.2, level AA).

>>> round(contrast("#000000", "#ffffff"), 6)
21.0
>>> css_variables(dark=False).splitlines()[0]
'--page: #f5f6f8;'
"""

COLOURS: dict[str, tuple[str, str]] = {  # role: (light, dark)
    "page": ("#f5f6f8", "#0f1318"),
    "card": ("#fefefe", "#181d24"),
    "rule": ("#d9dee5", "#313945"),
    "grid": ("#e8ebf0", "#282f39"),
    "ink": ("#18202b", "#e9edf2"),
    "muted": ("#556070", "#a3aebc"),
    "blue": ("#1d63b8", "#6db1f7"),
    "orange": ("#b8500a", "#f2a160"),
    "teal": ("#0a7566", "#54c9b5"),
    "purple": ("#7a43b6", "#c5a3f2"),
}

SERIES = ("blue", "orange", "teal", "purple")
LINE_STYLES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)))


def light(role: str) -> str:
    """The light-mode value of a role, which is also its placeholder in a drawing until the page overrides it."""
    return COLOURS[role][0]


def css_variables(dark: bool) -> str:
    """One CSS custom property a line."""
    return "\n".join(f"--{role}: {values[dark]};" for role, values in COLOURS.items())


def contrast(one: str, other: str) -> float:
    """The WCAG contrast ratio of two `#rrggbb` colours, from 1 (the same) to 21 (black on white)."""
    bright, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
