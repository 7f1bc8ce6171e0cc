/* Normal numbers from a table of quantiles; credent/quick_normal.py has the law. */

#include "share.h"

static FAST void look_up(const uint16_t *restrict bits, const float *restrict table, float *restrict out,
                         Py_ssize_t half, Py_ssize_t rest)
{
    for (Py_ssize_t i = 0; i < rest; i++) {
        float a = table[bits[i]], b = table[bits[half + i]];
        out[i] = a + b;
        out[half + i] = a - b;
    }
    if (rest < half) out[rest] = table[bits[rest]] + table[bits[half + rest]];
}

void draw_normal(const Stream *stream, Py_ssize_t block, float *out, Py_ssize_t n)
{
    Py_ssize_t half = (n + 1) / 2, words = (half + 1) / 2;
    union {
        uint64_t words[NORMALS / 4];
        uint16_t bits[NORMALS];
    } drawn;
    uint64_t a = stream->words[0], b = stream->words[1], c = stream->words[2] + (uint64_t)block, w = 1;
    for (Py_ssize_t i = -12; i < words; i++) { /* SFC64, whose first twelve numbers mix what it begins with */
        uint64_t next = a + b + w++;
        a = b ^ (b >> 11);
        b = c + (c << 3);
        c = ((c << 24) | (c >> 40)) + next;
        if (i >= 0) drawn.words[i] = next;
    }
    look_up(drawn.bits, stream->table, out, half, n - half);
}

typedef struct {
    Stream stream;
    float *out;
    Py_ssize_t n;
} Vector;

static void block_of_vector(void *job, Py_ssize_t block)
{
    Vector *given = job;
    Py_ssize_t begin = block * NORMALS, left = given->n - begin;
    draw_normal(&given->stream, block, given->out + begin, left < NORMALS ? left : NORMALS);
}

/* (threads, address, count, words a, b, c, address of the table) */
FUNCTION(normal)
{
    if (nargs != 7) {
        PyErr_SetString(PyExc_TypeError, "threads, address, count, three words and the table's address");
        return NULL;
    }
    Vector job = {.out = PyLong_AsVoidPtr(args[1]), .n = PyLong_AsSsize_t(args[2])};
    for (int i = 0; i < 3; i++) job.stream.words[i] = PyLong_AsUnsignedLongLong(args[3 + i]);
    job.stream.table = PyLong_AsVoidPtr(args[6]);
    long threads = PyLong_AsLong(args[0]);
    if (PyErr_Occurred()) return NULL;
    share(block_of_vector, &job, (job.n + NORMALS - 1) / NORMALS, 1, (int)threads);
    Py_RETURN_NONE;
}
