/* What all compiled loops share: instructions of the machine that runs them, and the threads of torch's own pool. */

#ifndef CREDENT_SHARE_H
#define CREDENT_SHARE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* a copy for each generation of processors, chosen when the module is loaded; GCC knows their names since 12 */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#if __GNUC__ >= 12
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FAST __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#else
#define FAST
#endif

typedef float *restrict Numbers;
typedef const float *restrict Given;

/* Work is cut into blocks that do not depend on the number of threads, so that results do not, either. As few as `alone`
   are not worth a second thread. */
typedef void (*Part)(void *job, Py_ssize_t block);
void share(Part part, void *job, Py_ssize_t blocks, Py_ssize_t alone, int threads);

/* Standard normal numbers: n of them, at most NORMALS, from the stream of bits that begins with these words, to the
   third of which the block is added (credent/quick_normal.py has BLOCK for NORMALS). */
#define NORMALS 16384
typedef struct {
    uint64_t words[3];
    const float *table;
} Stream;
void draw_normal(const Stream *stream, Py_ssize_t block, float *out, Py_ssize_t n);

#define FUNCTION(name) PyObject *name(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)

#endif
