"""Only what pyproject.toml cannot say: the compiled loops, without which everything works, and steps take longer."""

import hashlib
from pathlib import Path

from setuptools import Extension, setup

folder = Path("src/credent/native")
digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*.[ch]")))).hexdigest()
kernels = Extension(
    "credent.native._kernels",
    [str(path) for path in sorted(folder.glob("*.c"))],
    depends=[str(folder / "share.h")],
    define_macros=[("SOURCES", f'"{digest}"')],  # credent.native.sources compares
    extra_compile_args=["-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"],
    libraries=["m"],
    optional=True,  # where there is no C compiler the installation goes on
)
setup(ext_modules=[kernels])
