"""Only what pyproject.toml cannot say: the compiled passes, without which everything works, and steps take longer."""

from setuptools import Extension, setup

kernels = Extension(
    "credent.native._kernels",
    [f"src/credent/native/{name}.c" for name in ("module", "passes", "normal", "layers")],
    depends=["src/credent/native/share.h"],
    extra_compile_args=["-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"],
    libraries=["m"],
    optional=True,  # where there is no C compiler the installation goes on
)
setup(ext_modules=[kernels])
