/* The module `credent.native._kernels`: passes over all weights, normal numbers, and layers and their inputs.

   Every function but `normal` has a twin in the Python file that calls it, which says what it computes; the tests hold
   both to the same references. Tensors come as addresses of float32 numbers; whoever calls has looked at their type and
   memory. Threads are those of torch's own pool, by the entry point that GNU's OpenMP has: a second pool would wait for
   cores on which the first one spins. Without that entry one thread does the work. */

#include "share.h"
#ifndef _WIN32
#include <dlfcn.h>
#endif

typedef struct {
    Part part;
    void *job;
    Py_ssize_t blocks;
    int shares, taken;
} Team;

#ifndef _WIN32
static void (*pool)(void (*)(void *), void *, unsigned, unsigned);

/* whoever comes takes the next share, however many come */
static void member(void *data)
{
    Team *team = data;
    for (int k = __atomic_fetch_add(&team->taken, 1, __ATOMIC_RELAXED); k < team->shares;
         k = __atomic_fetch_add(&team->taken, 1, __ATOMIC_RELAXED))
        for (Py_ssize_t b = team->blocks * k / team->shares; b < team->blocks * (k + 1) / team->shares; b++)
            team->part(team->job, b);
}
#endif

void share(Part part, void *job, Py_ssize_t blocks, Py_ssize_t alone, int threads)
{
    Py_BEGIN_ALLOW_THREADS
#ifndef _WIN32
    if (pool && threads > 1 && blocks > alone) {
        Team team = {part, job, blocks, threads, 0};
        pool(member, &team, (unsigned)threads, 0);
    } else
#endif
        for (Py_ssize_t b = 0; b < blocks; b++) part(job, b);
    Py_END_ALLOW_THREADS
}

FUNCTION(energy);
FUNCTION(pull);
FUNCTION(kl);
FUNCTION(kl_back);
FUNCTION(draw);
FUNCTION(draw_back);
FUNCTION(expand);
FUNCTION(shift);
FUNCTION(expand_back);
FUNCTION(adapting_drift);
FUNCTION(root);
FUNCTION(drift);
FUNCTION(rooted_drift);
FUNCTION(normal);
FUNCTION(moments);
FUNCTION(input_map);
FUNCTION(normalised_drift);

#define LISTED(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}
static PyMethodDef methods[] = {
    LISTED(energy), LISTED(pull), LISTED(kl), LISTED(kl_back), LISTED(draw), LISTED(draw_back),
    LISTED(expand), LISTED(shift), LISTED(expand_back),
    LISTED(drift), LISTED(rooted_drift), LISTED(adapting_drift), LISTED(root),
    LISTED(normal), LISTED(moments), LISTED(input_map), LISTED(normalised_drift),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void)
{
#ifndef _WIN32
    pool = (void (*)(void (*)(void *), void *, unsigned, unsigned))dlsym(RTLD_DEFAULT, "GOMP_parallel");
#endif
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddStringConstant(made, "SOURCES", SOURCES) < 0) Py_CLEAR(made);
    return made;
}
