/* The module `credent.native._kernels`: passes over all weights, normal numbers, and layers and their inputs.

   Every function has a twin in the Python file that calls it, which says what it computes and which the tests hold it
   to. Tensors come as addresses of float32 numbers; whoever calls has looked at their type and memory. Threads are those
   of torch's own pool, by the entry point that GNU's OpenMP has: a second pool would wait for cores on which the first
   one spins. Without that entry one thread does the work. */

#include "share.h"
#ifndef _WIN32
#include <dlfcn.h>
#endif

#define ALONE 16 /* blocks that are not worth a second thread */

typedef struct {
    Part part;
    void *job;
    Py_ssize_t blocks;
} Team;

static void (*pool)(void (*)(void *), void *, unsigned, unsigned);
static int (*rank_of)(void), (*ranks)(void);

static void member(void *data)
{
    Team *team = data;
    Py_ssize_t rank = rank_of(), all = ranks();
    for (Py_ssize_t b = team->blocks * rank / all, end = team->blocks * (rank + 1) / all; b < end; b++)
        team->part(team->job, b);
}

void share(Part part, void *job, Py_ssize_t blocks, int threads)
{
    Team team = {part, job, blocks};
    Py_BEGIN_ALLOW_THREADS
    if (pool && threads > 1 && blocks > ALONE)
        pool(member, &team, (unsigned)threads, 0);
    else
        for (Py_ssize_t b = 0; b < blocks; b++)
            part(job, b);
    Py_END_ALLOW_THREADS
}

FUNCTION(energy);
FUNCTION(pull);
FUNCTION(draw);
FUNCTION(draw_back);
FUNCTION(expand);
FUNCTION(shift);
FUNCTION(expand_back);
FUNCTION(rmsprop);
FUNCTION(drift);
FUNCTION(rooted_drift);
FUNCTION(normal);
FUNCTION(moments);
FUNCTION(input_map);
FUNCTION(normalised_drift);

#define LISTED(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}
static PyMethodDef methods[] = {
    LISTED(energy),  LISTED(pull),  LISTED(draw),   LISTED(draw_back), LISTED(expand),
    LISTED(shift),   LISTED(expand_back), LISTED(rmsprop), LISTED(drift),  LISTED(rooted_drift),
    LISTED(normal),  LISTED(moments), LISTED(input_map), LISTED(normalised_drift), {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void)
{
#ifndef _WIN32
    pool = (void (*)(void (*)(void *), void *, unsigned, unsigned))dlsym(RTLD_DEFAULT, "GOMP_parallel");
    rank_of = (int (*)(void))dlsym(RTLD_DEFAULT, "omp_get_thread_num");
    ranks = (int (*)(void))dlsym(RTLD_DEFAULT, "omp_get_num_threads");
    if (!rank_of || !ranks) pool = NULL;
#endif
    return PyModule_Create(&module);
}
