"""A library of custom operators for onnxruntime, built with the host's C compiler.

Two operators of the domain `acme`: `Bend`, y = x / (1 + |x|) element by element, and `Keep`, the elements of
x above zero, whose number data decides. onnxruntime's package has no headers: the source declares the few
entries of the stable C API that it calls by their places in the table of functions.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compilers import c_compiler

SOURCE = r"""
#include <stddef.h>
#include <stdint.h>
#include <math.h>

typedef struct { const void *const *(*get_api)(uint32_t version); const char *(*version)(void); } Base;
typedef struct Operator Operator;
struct Operator {
    uint32_t version;
    void *(*create)(const Operator *, const void *api, const void *info);
    const char *(*name)(const Operator *);
    const char *(*provider)(const Operator *);
    int (*input_type)(const Operator *, size_t);
    size_t (*input_count)(const Operator *);
    int (*output_type)(const Operator *, size_t);
    size_t (*output_count)(const Operator *);
    void (*compute)(void *kernel, void *context);
    void (*destroy)(void *kernel);
    int (*input_kind)(const Operator *, size_t);
    int (*output_kind)(const Operator *, size_t);
};

static const void *const *api;
#define CALL(place, ...) ((void *(*)(__VA_ARGS__))api[place])
enum { CREATE_DOMAIN = 26, ADD_OPERATOR = 27, ADD_DOMAIN = 28, DATA = 51, RANK = 61, SIZES = 62, COUNT = 64,
       TYPE_OF = 65, GET_INPUT = 90, GET_OUTPUT = 91, RELEASE_TYPE = 99 };

static void *operand(void *context, int64_t *sizes, size_t *rank, size_t *count) {
    const void *value;
    void *type, *data;
    CALL(GET_INPUT, const void *, size_t, const void **)(context, 0, &value);
    CALL(TYPE_OF, const void *, void **)(value, &type);
    CALL(RANK, const void *, size_t *)(type, rank);
    CALL(SIZES, const void *, int64_t *, size_t)(type, sizes, *rank);
    CALL(COUNT, const void *, size_t *)(type, count);
    ((void (*)(void *))api[RELEASE_TYPE])(type);
    CALL(DATA, void *, void **)((void *)value, &data);
    return data;
}

static float *result(void *context, const int64_t *sizes, size_t rank) {
    void *value, *data;
    CALL(GET_OUTPUT, void *, size_t, const int64_t *, size_t, void **)(context, 0, sizes, rank, &value);
    CALL(DATA, void *, void **)(value, &data);
    return data;
}

static void bend(void *kernel, void *context) {
    int64_t sizes[8];
    size_t rank, count;
    const float *x = operand(context, sizes, &rank, &count);
    float *y = result(context, sizes, rank);
    for (size_t i = 0; i < count; i++) y[i] = x[i] / (1.0f + fabsf(x[i]));
}

static void keep(void *kernel, void *context) {
    int64_t sizes[8], found = 0;
    size_t rank, count;
    const float *x = operand(context, sizes, &rank, &count);
    for (size_t i = 0; i < count; i++) found += x[i] > 0.0f;
    float *y = result(context, &found, 1);
    for (size_t i = 0; i < count; i++) if (x[i] > 0.0f) *y++ = x[i];
}

static void *create(const Operator *self, const void *given, const void *info) { return (void *)self; }
static const char *bend_name(const Operator *self) { return "Bend"; }
static const char *keep_name(const Operator *self) { return "Keep"; }
static const char *provider(const Operator *self) { return NULL; }
static int real(const Operator *self, size_t index) { return 1; }
static size_t one(const Operator *self) { return 1; }
static void destroy(void *kernel) {}
static int required(const Operator *self, size_t index) { return 0; }
static const Operator BEND = {8, create, bend_name, provider, real, one, real, one, bend, destroy, required,
                              required};
static const Operator KEEP = {8, create, keep_name, provider, real, one, real, one, keep, destroy, required,
                              required};

void *RegisterCustomOps(void *options, const Base *base) {
    void *domain, *status;
    api = base->get_api(8);
    if ((status = CALL(CREATE_DOMAIN, const char *, void **)("acme", &domain))) return status;
    if ((status = CALL(ADD_OPERATOR, void *, const Operator *)(domain, &BEND))) return status;
    if ((status = CALL(ADD_OPERATOR, void *, const Operator *)(domain, &KEEP))) return status;
    return CALL(ADD_DOMAIN, void *, void *)(options, domain);
}
"""


def build_library(folder: Path) -> Path:
    """Compile the library. Skips the test where there is no C compiler."""
    source, library = folder / "acme.c", folder / "libacme.so"
    source.write_text(SOURCE)
    subprocess.run([c_compiler(), "-shared", "-fPIC", "-O1", "-o", library, source, "-lm"], check=True)
    return library
