/* Passes over all weights: one loop for what torch does in several calls, each with a vector for its result.

   Tensors come one for each parameter, or as the one address of a vector that holds them one after the other; normal
   numbers may come as the stream of bits that they are drawn from, for each block of a tensor on the spot. Sizes, means m
   and precisions p come one for each tensor. */

#include "share.h"

#define BLOCK 8192  /* numbers that a thread works on at a time: they stay in its cache */
#define SUMMED 1024 /* numbers that are added up in float32 before they go into a double */
#define ALONE 4     /* blocks: microseconds */
#define LIGHT 16    /* blocks, of loops that have little to compute */
#define SUMS 4      /* that one pass can make */

typedef struct {
    Py_ssize_t count, blocks;
    Py_ssize_t *size, *first; /* of each tensor, in numbers and in blocks before it */
    double *loc, *precision;
} Layout;

#define STREAMS 6
typedef void (*Loop)(float *const *at, Py_ssize_t n, const float *by, float m, double precision, double *sums);

typedef struct {
    Layout layout;
    float **of[STREAMS]; /* address of each tensor in each stream */
    int drawn;           /* the one of them that is drawn, or -1 */
    Stream normals;
    float by[4];
    double *sums; /* SUMS for each block */
    Loop loop;
} Pass;

static int numbers(PyObject *list, Py_ssize_t count, double *out)
{
    Py_ssize_t given = PyList_Size(list);
    if (given && given != count) {
        PyErr_SetString(PyExc_ValueError, "a number for each tensor, or none at all");
        return -1;
    }
    for (Py_ssize_t k = 0; k < count; k++)
        out[k] = given ? PyFloat_AsDouble(PyList_GetItem(list, k)) : 0;
    return PyErr_Occurred() ? -1 : 0;
}

static int addresses(PyObject *given, const Layout *layout, float **out)
{
    if (PyList_Check(given)) {
        if (PyList_Size(given) != layout->count) {
            PyErr_SetString(PyExc_ValueError, "as many tensors as the layout has");
            return -1;
        }
        for (Py_ssize_t k = 0; k < layout->count; k++)
            out[k] = PyLong_AsVoidPtr(PyList_GetItem(given, k));
    } else {
        float *base = PyLong_AsVoidPtr(given);
        for (Py_ssize_t k = 0; k < layout->count; k++) {
            out[k] = base;
            base += layout->size[k];
        }
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* (words a, b, c, address of the table) */
static int stream(PyObject *given, Stream *out)
{
    if (PyTuple_Size(given) != 4) {
        PyErr_SetString(PyExc_ValueError, "three words and the table's address");
        return -1;
    }
    for (int i = 0; i < 3; i++) out->words[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(given, i));
    out->table = PyLong_AsVoidPtr(PyTuple_GetItem(given, 3));
    return PyErr_Occurred() ? -1 : 0;
}

static void one(void *job, Py_ssize_t block)
{
    Pass *pass = job;
    Layout *l = &pass->layout;
    Py_ssize_t low = 0, high = l->count - 1;
    while (low < high) { /* the last tensor that begins at or before this block; empty ones begin with the next */
        Py_ssize_t middle = (low + high + 1) / 2;
        if (l->first[middle] <= block) low = middle; else high = middle - 1;
    }
    Py_ssize_t begin = (block - l->first[low]) * BLOCK, n = l->size[low] - begin;
    if (n > BLOCK) n = BLOCK;
    float *at[STREAMS], normals[BLOCK];
    for (int s = 0; s < STREAMS; s++)
        at[s] = pass->of[s] ? pass->of[s][low] + begin : NULL;
    if (pass->drawn >= 0) {
        draw_normal(&pass->normals, block, normals, n);
        at[pass->drawn] = normals;
    }
    double *sums = pass->sums + SUMS * block;
    for (int s = 0; s < SUMS; s++) sums[s] = 0;
    for (Py_ssize_t done = 0; done < n; done += SUMMED) {
        Py_ssize_t left = n - done;
        pass->loop(at, left < SUMMED ? left : SUMMED, pass->by, (float)l->loc[low], l->precision[low], sums);
        for (int s = 0; s < STREAMS; s++)
            if (at[s]) at[s] += SUMMED;
    }
}

/* (threads, sizes, locs, precisions, streams, numbers): all tensors of all streams through one loop; its sums */
static PyObject *run(PyObject *const *args, Py_ssize_t nargs, Loop loop, Py_ssize_t streams, Py_ssize_t alone)
{
    if (nargs != 6 || !PyList_Check(args[1]) || !PyList_Check(args[2]) || !PyList_Check(args[3]) ||
        !PyTuple_Check(args[4]) || !PyTuple_Check(args[5]) || PyTuple_Size(args[4]) != streams ||
        PyTuple_Size(args[5]) > 4) {
        PyErr_Format(PyExc_TypeError, "threads, sizes, locs, precisions, %zd streams and numbers", streams);
        return NULL;
    }
    Pass pass = {.loop = loop, .drawn = -1};
    Layout *l = &pass.layout;
    l->count = PyList_Size(args[1]);
    PyObject *found = NULL;
    size_t each = sizeof(Py_ssize_t) * 2 + sizeof(double) * 2 + sizeof(float *) * STREAMS;
    char *memory = PyMem_Malloc(each * (l->count + 1));
    if (!memory) return PyErr_NoMemory();
    l->size = (Py_ssize_t *)memory;
    l->first = l->size + l->count;
    l->loc = (double *)(l->first + l->count);
    l->precision = l->loc + l->count;
    float **table = (float **)(l->precision + l->count);
    for (Py_ssize_t k = 0; k < l->count; k++) {
        l->size[k] = PyLong_AsSsize_t(PyList_GetItem(args[1], k));
        l->first[k] = l->blocks;
        l->blocks += (l->size[k] + BLOCK - 1) / BLOCK;
    }
    if (numbers(args[2], l->count, l->loc) || numbers(args[3], l->count, l->precision)) goto done;
    for (Py_ssize_t s = 0; s < streams; s++) {
        PyObject *given = PyTuple_GetItem(args[4], s);
        if (PyTuple_Check(given)) {
            if (pass.drawn >= 0) {
                PyErr_SetString(PyExc_ValueError, "one stream of noise at most");
                goto done;
            }
            pass.drawn = (int)s;
            if (stream(given, &pass.normals)) goto done;
            continue;
        }
        pass.of[s] = table + s * l->count;
        if (addresses(given, l, pass.of[s])) goto done;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(args[5]); i++)
        pass.by[i] = (float)PyFloat_AsDouble(PyTuple_GetItem(args[5], i));
    long threads = PyLong_AsLong(args[0]);
    pass.sums = PyMem_Malloc(sizeof(double) * SUMS * (l->blocks + 1));
    if (!pass.sums) PyErr_NoMemory();
    if (PyErr_Occurred()) goto done;
    share(one, &pass, l->blocks, alone, (int)threads);
    double total[SUMS] = {0};
    for (Py_ssize_t b = 0; b < l->blocks; b++)
        for (int s = 0; s < SUMS; s++) total[s] += pass.sums[SUMS * b + s];
    found = Py_BuildValue("dddd", total[0], total[1], total[2], total[3]);
done:
    PyMem_Free(pass.sums);
    PyMem_Free(memory);
    return found;
}

/* -- arithmetic -------------------------------------------------------------------------------------------------- */

/* sigma = e^rho to an ulp or two, as 2^n e^r with |r| <= log(2) / 2. rho is held to where float32 has such a number, in a
   loop of its own: within the other one compilers make branches of it, and nothing of the branches that is fast. */
static inline void exponential(Given rho, Py_ssize_t n, Numbers sigma)
{
#pragma omp simd
    for (Py_ssize_t i = 0; i < n; i++) sigma[i] = rho[i] < -87.0f ? -87.0f : rho[i];
#pragma omp simd
    for (Py_ssize_t i = 0; i < n; i++) sigma[i] = sigma[i] > 88.0f ? 88.0f : sigma[i];
#pragma omp simd
    for (Py_ssize_t i = 0; i < n; i++) {
        float x = sigma[i], t = x * 1.442695041f;
        int32_t whole = (int32_t)(t + copysignf(0.5f, t));
        float r = (x - (float)whole * 0.693359375f) + (float)whole * 2.12194440e-4f;
        float p = 1 + r * (1 + r * (0.5f + r * (1.66666667e-1f + r * (4.16666667e-2f + r * (8.33333333e-3f +
                  r * (1.38888889e-3f + r * 1.98412698e-4f))))));
        uint32_t bits = (uint32_t)(whole + 127) << 23;
        float power;
        memcpy(&power, &bits, sizeof power);
        sigma[i] = p * power;
    }
}

static inline float twice_kl(float off, float rho, float variance, float p, float log_p)
{
    return p * (variance + off * off) - 1 - log_p - 2 * rho;
}

#define LOOP(name)                                                                                                \
    static FAST void name##_loop(float *const *at, Py_ssize_t n, const float *by, float m, double precision,         \
                                 double *sums)
#define METHOD(name, streams, alone)                                                                              \
    FUNCTION(name) { return run(args, nargs, name##_loop, streams, alone); }

/* sum p (w - m)^2 */
LOOP(energy)
{
    Given w = at[0];
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (Py_ssize_t i = 0; i < n; i++) sum += (w[i] - m) * (w[i] - m);
    sums[0] += sum * precision;
}
METHOD(energy, 1, LIGHT)

/* out = c p (w - m) */
LOOP(pull)
{
    Given w = at[0];
    Numbers out = at[1];
    float c = (float)(by[0] * precision);
#pragma omp simd
    for (Py_ssize_t i = 0; i < n; i++) out[i] = c * (w[i] - m);
}
METHOD(pull, 2, LIGHT)

/* sum of p (sigma^2 + (mu - m)^2) - 1 - log(p sigma^2), which is twice the KL */
LOOP(kl)
{
    Given mu = at[0], rho = at[1];
    float sum = 0, p = (float)precision, log_p = (float)log(precision);
    float sigma[SUMMED];
    exponential(rho, n, sigma);
#pragma omp simd reduction(+ : sum)
    for (Py_ssize_t i = 0; i < n; i++) sum += twice_kl(mu[i] - m, rho[i], sigma[i] * sigma[i], p, log_p);
    sums[0] += sum;
}
METHOD(kl, 2, ALONE)

/* by_mu = c p (mu - m);  by_rho = c (p sigma^2 - 1) */
LOOP(kl_back)
{
    Given mu = at[0], rho = at[1];
    Numbers by_mu = at[2], by_rho = at[3];
    float c = by[0], cp = (float)(by[0] * precision);
    float sigma[SUMMED];
    exponential(rho, n, sigma);
#pragma omp simd
    for (Py_ssize_t i = 0; i < n; i++) {
        by_mu[i] = cp * (mu[i] - m);
        by_rho[i] = cp * sigma[i] * sigma[i] - c;
    }
}
METHOD(kl_back, 4, ALONE)

/* out = mu + sign e sigma, and twice the KL */
LOOP(draw)
{
    Given mu = at[0], rho = at[1], e = at[2];
    Numbers out = at[3];
    float sum = 0, sign = by[0], p = (float)precision, log_p = (float)log(precision);
    float sigma[SUMMED];
    exponential(rho, n, sigma);
#pragma omp simd reduction(+ : sum)
    for (Py_ssize_t i = 0; i < n; i++) {
        out[i] = mu[i] + sign * e[i] * sigma[i];
        sum += twice_kl(mu[i] - m, rho[i], sigma[i] * sigma[i], p, log_p);
    }
    sums[0] += sum;
}
METHOD(draw, 4, ALONE)

/* by_mu = g + c p (mu - m);  by_rho = sigma (sign g e + c p sigma) - c */
LOOP(draw_back)
{
    Given mu = at[0], rho = at[1], e = at[2], g = at[3];
    Numbers by_mu = at[4], by_rho = at[5];
    float sign = by[0], c = by[1], cp = (float)(by[1] * precision);
    float sigma[SUMMED];
    exponential(rho, n, sigma);
#pragma omp simd
    for (Py_ssize_t i = 0; i < n; i++) {
        by_mu[i] = g[i] + cp * (mu[i] - m);
        by_rho[i] = sigma[i] * (sign * g[i] * e[i] + cp * sigma[i]) - c;
    }
}
METHOD(draw_back, 6, ALONE)

/* sums of sigma^2 g^2, sigma^4 g^2, mu^2, and twice the KL */
LOOP(expand)
{
    Given mu = at[0], rho = at[1], g = at[2];
    float rise = 0, length = 0, size = 0, kl = 0, p = (float)precision, log_p = (float)log(precision);
    float sigma[SUMMED];
    exponential(rho, n, sigma);
#pragma omp simd reduction(+ : rise, length, size, kl)
    for (Py_ssize_t i = 0; i < n; i++) {
        float variance = sigma[i] * sigma[i], v = variance * g[i];
        rise += v * g[i];
        length += v * v;
        size += mu[i] * mu[i];
        kl += twice_kl(mu[i] - m, rho[i], variance, p, log_p);
    }
    sums[0] += rise;
    sums[1] += length;
    sums[2] += size;
    sums[3] += kl;
}
METHOD(expand, 3, ALONE)

/* out = mu + h sigma^2 g */
LOOP(shift)
{
    Given mu = at[0], rho = at[1], g = at[2];
    Numbers out = at[3];
    float h = by[0];
    float sigma[SUMMED];
    exponential(rho, n, sigma);
#pragma omp simd
    for (Py_ssize_t i = 0; i < n; i++) {
        out[i] = mu[i] + h * sigma[i] * sigma[i] * g[i];
    }
}
METHOD(shift, 4, ALONE)

/* by_mu = a (after - before) + c p (mu - m);  by_rho = sigma^2 (b before^2 + c p) - c */
LOOP(expand_back)
{
    Given mu = at[0], rho = at[1], before = at[2], after = at[3];
    Numbers by_mu = at[4], by_rho = at[5];
    float a = by[0], b = by[1], c = by[2], cp = (float)(by[2] * precision);
    float sigma[SUMMED];
    exponential(rho, n, sigma);
#pragma omp simd
    for (Py_ssize_t i = 0; i < n; i++) {
        by_mu[i] = a * (after[i] - before[i]) + cp * (mu[i] - m);
        by_rho[i] = sigma[i] * sigma[i] * (b * before[i] * before[i] + cp) - c;
    }
}
METHOD(expand_back, 6, ALONE)

/* w = w + a g + s xi */
LOOP(drift)
{
    Given g = at[1], xi = at[2];
    Numbers w = at[0];
    float a = by[0], s = by[1];
#pragma omp simd
    for (Py_ssize_t i = 0; i < n; i++) w[i] += a * g[i] + s * xi[i];
}
METHOD(drift, 3, ALONE)

/* w = w + root (a root g + s xi) */
LOOP(rooted_drift)
{
    Given g = at[1], root = at[2], xi = at[3];
    Numbers w = at[0];
    float a = by[0], s = by[1];
#pragma omp simd
    for (Py_ssize_t i = 0; i < n; i++) w[i] += root[i] * (a * root[i] * g[i] + s * xi[i]);
}
METHOD(rooted_drift, 4, ALONE)

/* V = decay V + (1 - decay) g^2;  w = w + root (a root g + s xi),  root = 1 / sqrt(damping + sqrt V) */
LOOP(adapting_drift)
{
    Given g = at[1], xi = at[3];
    Numbers w = at[0], square = at[2];
    float a = by[0], s = by[1], decay = by[2], left = 1 - decay, damping = by[3];
#pragma omp simd
    for (Py_ssize_t i = 0; i < n; i++) {
        square[i] = decay * square[i] + left * g[i] * g[i];
        float root = 1 / sqrtf(damping + sqrtf(square[i]));
        w[i] += root * (a * root * g[i] + s * xi[i]);
    }
}
METHOD(adapting_drift, 4, ALONE)

/* out = 1 / sqrt(damping + sqrt V) */
LOOP(root)
{
    Given square = at[0];
    Numbers out = at[1];
    float damping = by[0];
#pragma omp simd
    for (Py_ssize_t i = 0; i < n; i++) out[i] = 1 / sqrtf(damping + sqrtf(square[i]));
}
METHOD(root, 2, ALONE)

