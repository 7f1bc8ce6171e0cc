/* Layers and what goes into them: moments of inputs by channel, and the step of BNP-SGLD; credent/samplers/inputs.py and
   bnp.py have the equations. */

#include "share.h"

#define PARTS 64   /* of a batch, at most; each has sums of its own */
#define GROUP 64   /* rows that are added up in float32 before they go into a double */
#define SOME 256   /* channels whose sums are at hand */
#define FAR 1e-2   /* variance over squared distance from the mean under which numbers were taken about a bad place */
#define ALONE 8    /* blocks: microseconds */
#define WORK 16384 /* numbers that are worth a block */

static void *address(PyObject *number) { return PyLong_AsVoidPtr(number); }

/* -- moments --------------------------------------------------------------------------------------------------------- */

typedef struct {
    const float *h;
    Py_ssize_t rows, channels, positions, per; /* `per` rows in a part */
    float *near;                               /* a number by channel: sums are of h - near, and of its square */
    double *sums;                              /* of each part, by channel */
} Inputs;

/* some columns of a matrix of rows by channels, about numbers that are near their means */
static FAST void columns(const float *h, Py_ssize_t stride, Given near, Py_ssize_t rows, Py_ssize_t n, Numbers sum,
                         Numbers square)
{
    for (Py_ssize_t r = 0; r < rows; r++) {
        Given row = h + r * stride;
#pragma omp simd
        for (Py_ssize_t c = 0; c < n; c++) {
            float off = row[c] - near[c];
            sum[c] += off;
            square[c] += off * off;
        }
    }
}

static FAST void plane(Given h, float near, Py_ssize_t n, double *sum, double *square)
{
    for (Py_ssize_t begin = 0; begin < n; begin += 1024) {
        Py_ssize_t end = begin + 1024 < n ? begin + 1024 : n;
        float s = 0, q = 0;
#pragma omp simd reduction(+ : s, q)
        for (Py_ssize_t i = begin; i < end; i++) {
            float off = h[i] - near;
            s += off;
            q += off * off;
        }
        *sum += s;
        *square += q;
    }
}

static void gather(void *job, Py_ssize_t part)
{
    Inputs *in = job;
    Py_ssize_t C = in->channels, begin = part * in->per, end = begin + in->per < in->rows ? begin + in->per : in->rows;
    double *sum = in->sums + 2 * C * part, *square = sum + C;
    memset(sum, 0, sizeof(double) * 2 * C);
    if (in->positions == 1) {
        for (Py_ssize_t first = 0; first < C; first += SOME)
            for (Py_ssize_t r = begin; r < end; r += GROUP) {
                Py_ssize_t n = C - first < SOME ? C - first : SOME, rows = end - r < GROUP ? end - r : GROUP;
                float sums[SOME] = {0}, squares[SOME] = {0};
                columns(in->h + r * C + first, C, in->near + first, rows, n, sums, squares);
                for (Py_ssize_t c = 0; c < n; c++) {
                    sum[first + c] += sums[c];
                    square[first + c] += squares[c];
                }
            }
        return;
    }
    for (Py_ssize_t r = begin; r < end; r++)
        for (Py_ssize_t c = 0; c < C; c++)
            plane(in->h + (r * C + c) * in->positions, in->near[c], in->positions, sum + c, square + c);
}

/* mean and variance by channel; whether a difference of squares cost digits */
static int gathered(Inputs *in, Py_ssize_t parts, int threads, float *mean, float *variance)
{
    int far = 0;
    double n = (double)in->rows * (double)in->positions;
    share(gather, in, parts, ALONE, threads);
    for (Py_ssize_t c = 0; c < in->channels; c++) {
        double sum = 0, square = 0;
        for (Py_ssize_t p = 0; p < parts; p++) {
            sum += in->sums[2 * in->channels * p + c];
            square += in->sums[2 * in->channels * p + in->channels + c];
        }
        sum /= n;
        square = square / n - sum * sum;
        far = far || square < FAR * sum * sum;
        mean[c] = (float)(in->near[c] + sum);
        variance[c] = square < 0 ? 0 : (float)square;
    }
    return far;
}

/* (threads, h, rows, channels, positions, mean, variance): h lies as rows x channels x positions */
FUNCTION(moments)
{
    if (nargs != 7) {
        PyErr_SetString(PyExc_TypeError, "threads, h, rows, channels, positions, mean and variance");
        return NULL;
    }
    Inputs in = {.h = address(args[1]), .rows = PyLong_AsSsize_t(args[2]), .channels = PyLong_AsSsize_t(args[3])};
    in.positions = PyLong_AsSsize_t(args[4]);
    float *mean = address(args[5]), *variance = address(args[6]);
    long threads = PyLong_AsLong(args[0]);
    if (PyErr_Occurred()) return NULL;
    Py_ssize_t each = in.channels * in.positions, least = each > 0 ? (WORK + each - 1) / each : 1;
    in.per = (in.rows + PARTS - 1) / PARTS;
    if (in.per < least) in.per = least;
    Py_ssize_t parts = (in.rows + in.per - 1) / in.per;
    if (in.rows < 1 || in.positions < 1) {
        PyErr_SetString(PyExc_ValueError, "moments of no numbers");
        return NULL;
    }
    in.near = PyMem_Malloc(sizeof(float) * (size_t)(in.channels + 1));
    in.sums = PyMem_Malloc(sizeof(double) * 2 * (size_t)(in.channels * parts + 1));
    if (!in.near || !in.sums) {
        PyMem_Free(in.near);
        PyMem_Free(in.sums);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t c = 0; c < in.channels; c++) in.near[c] = in.h[c * in.positions];
    int far = gathered(&in, parts, (int)threads, mean, variance);
    if (far) { /* what a channel began with was far from its mean: about the mean, then */
        memcpy(in.near, mean, sizeof(float) * (size_t)in.channels);
        gathered(&in, parts, (int)threads, mean, variance);
    }
    PyMem_Free(in.near);
    PyMem_Free(in.sums);
    Py_RETURN_NONE;
}

/* -- the step ---------------------------------------------------------------------------------------------------------- */

/* (mean, variance, channels, kernel, last, share, floor, q, means, roots, pulls): mu, 1 / (s q) and mu / (s q) for each
   weight of a unit, whose channels lie last or first in memory */
FUNCTION(input_map)
{
    if (nargs != 11) {
        PyErr_SetString(PyExc_TypeError, "mean, variance, channels, kernel, last, share, floor, q, means, roots, pulls");
        return NULL;
    }
    const float *mean = address(args[0]), *variance = address(args[1]);
    Py_ssize_t channels = PyLong_AsSsize_t(args[2]), kernel = PyLong_AsSsize_t(args[3]);
    long last = PyLong_AsLong(args[4]);
    double part = PyFloat_AsDouble(args[5]), floor = PyFloat_AsDouble(args[6]), q = PyFloat_AsDouble(args[7]);
    float *means = address(args[8]), *roots = address(args[9]), *pulls = address(args[10]), most = 0;
    if (PyErr_Occurred()) return NULL;
    for (Py_ssize_t c = 0; c < channels; c++) most = variance[c] > most || variance[c] != variance[c] ? variance[c] : most;
    for (Py_ssize_t c = 0; c < channels; c++) {
        float root = (float)(1 / (q * sqrt(variance[c] + part * most + floor)));
        for (Py_ssize_t k = 0; k < kernel; k++) {
            Py_ssize_t i = last ? k * channels + c : c * kernel + k;
            means[i] = mean[c];
            roots[i] = root;
            pulls[i] = mean[c] * root;
        }
    }
    Py_RETURN_NONE;
}

typedef struct {
    Py_ssize_t units, inputs, per;
    const float *mean, *root, *pull, *grad, *noise, *bias_grad, *bias_noise;
    float *weight, *bias, rate, spread, unit_root;
} Step;

static FAST float unit(Numbers w, Given g, Given xi, Given mean, Given root, Given pull, Py_ssize_t n, float by_bias,
                       float rate, float spread)
{
    float pulled = 0;
#pragma omp simd reduction(+ : pulled)
    for (Py_ssize_t i = 0; i < n; i++) {
        float u = spread * xi[i] + rate * root[i] * (g[i] - mean[i] * by_bias);
        w[i] += root[i] * u;
        pulled += pull[i] * u;
    }
    return pulled;
}

static void some_units(void *job, Py_ssize_t block)
{
    Step *s = job;
    Py_ssize_t end = (block + 1) * s->per < s->units ? (block + 1) * s->per : s->units;
    for (Py_ssize_t k = block * s->per; k < end; k++) {
        Py_ssize_t at = k * s->inputs;
        float by_bias = s->bias ? s->bias_grad[k] : 0;
        float pulled = unit(s->weight + at, s->grad + at, s->noise + at, s->mean, s->root, s->pull, s->inputs, by_bias,
                            s->rate, s->spread);
        if (s->bias)
            s->bias[k] += s->unit_root * (s->spread * s->bias_noise[k] + s->rate * s->unit_root * by_bias) - pulled;
    }
}

/* (threads, units, inputs, (mean, root, pull), (weight, grad, noise), (bias, grad, noise) or (), unit root, rate, spread) */
FUNCTION(normalised_drift)
{
    if (nargs != 9 || !PyTuple_Check(args[3]) || !PyTuple_Check(args[4]) || !PyTuple_Check(args[5]) ||
        PyTuple_Size(args[3]) != 3 || PyTuple_Size(args[4]) != 3 || (PyTuple_Size(args[5]) != 0 && PyTuple_Size(args[5]) != 3)) {
        PyErr_SetString(PyExc_TypeError, "threads, units, inputs, the map, the weight, the bias, unit root, rate, spread");
        return NULL;
    }
    Step s = {.units = PyLong_AsSsize_t(args[1]), .inputs = PyLong_AsSsize_t(args[2])};
    s.mean = address(PyTuple_GetItem(args[3], 0));
    s.root = address(PyTuple_GetItem(args[3], 1));
    s.pull = address(PyTuple_GetItem(args[3], 2));
    s.weight = address(PyTuple_GetItem(args[4], 0));
    s.grad = address(PyTuple_GetItem(args[4], 1));
    s.noise = address(PyTuple_GetItem(args[4], 2));
    if (PyTuple_Size(args[5])) {
        s.bias = address(PyTuple_GetItem(args[5], 0));
        s.bias_grad = address(PyTuple_GetItem(args[5], 1));
        s.bias_noise = address(PyTuple_GetItem(args[5], 2));
    }
    s.unit_root = (float)PyFloat_AsDouble(args[6]);
    s.rate = (float)PyFloat_AsDouble(args[7]);
    s.spread = (float)PyFloat_AsDouble(args[8]);
    long threads = PyLong_AsLong(args[0]);
    if (PyErr_Occurred()) return NULL;
    s.per = s.inputs > 0 ? (WORK / 2 + s.inputs - 1) / s.inputs : s.units + 1;
    share(some_units, &s, (s.units + s.per - 1) / s.per, ALONE, (int)threads);
    Py_RETURN_NONE;
}
