"""C that every file of a program begins with: guards, access to memory, rounding, fused multiply-adds."""

from __future__ import annotations

from qglow.numerics.scalar.c_source import PREAMBLE

GUARDS = """\
#include <float.h>

#ifdef __FAST_MATH__
#error "compile without -ffast-math: it changes results"
#endif
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "floats must be computed as float (FLT_EVAL_METHOD 0), not in wider registers"
#endif

"""
_TYPES = {
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "u8": "uint8_t",
    "u16": "uint16_t",
    "u32": "uint32_t",
    "u64": "uint64_t",
    "f32": "float",
    "f64": "double",
}
_ACCESS = """\
static inline @T@ load_@N@(const void *p, int32_t i)
{
    @T@ x;
    memcpy(&x, (const unsigned char *)p + (ptrdiff_t)i * (ptrdiff_t)sizeof x, sizeof x);
    return x;
}

static inline void store_@N@(void *p, int32_t i, @T@ x)
{
    memcpy((unsigned char *)p + (ptrdiff_t)i * (ptrdiff_t)sizeof x, &x, sizeof x);
}

"""
_ARITHMETIC = """\
/* Clamp, round half to even, add the zero point; NaN becomes the zero point. Adding 1.5 * 2^23 leaves no bit
   for fractions: bounds are far below it. */
static inline int32_t saturated(float x, float low, float high, int32_t zero)
{
    x = x < low ? low : x;
    x = x > high ? high : x;
    if (x != x) {
        return zero;
    }
    const float moved = x + 12582912.0f;
    return bits_of(moved) - 0x4B400000 + zero;
}

/* x * m rounded twice, in fixed point: the upper half of the product with the digits of m, ties upwards, then
   divided by a power of two, ties away from zero. */
static int32_t fixed_product(int32_t x, float m)
{
    const int32_t exponent = (bits_of(m) >> 23) - 126;
    const int32_t up = exponent < 0 ? 0 : exponent > 31 ? 31 : exponent;
    const int32_t down = exponent > 0 ? 0 : exponent < -31 ? 31 : -exponent;
    const int64_t digits = exponent < -31 ? 0 : ((bits_of(m) & 0x7fffff) | 0x800000) * (int64_t)128;
    int64_t value = x * ((int64_t)1 << up);
    value = value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value;
    value = value * digits + 0x40000000;
    value = value < 0 ? ~(~value >> 31) : value >> 31;
    const int64_t mask = ((int64_t)1 << down) - 1;
    const int64_t rest = (int64_t)((uint64_t)value & (uint64_t)mask);
    const int64_t whole = value < 0 ? ~(~value >> down) : value >> down;
    return (int32_t)(whole + (rest > (mask >> 1) + (value < 0)));
}

/* Whole steps with the zero point, within bounds without it. */
static inline int32_t placed(int32_t steps, int32_t low, int32_t high, int32_t zero)
{
    return (steps < low ? low : steps > high ? high : steps) + zero;
}

/* The next double, away from zero or towards it. */
static double neighbour(double x, int up)
{
    int64_t n;
    memcpy(&n, &x, sizeof n);
    n += (up == (x > 0.0)) ? 1 : -1;
    memcpy(&x, &n, sizeof x);
    return x;
}

/* a * b + c, rounded once: the product of floats is exact in double, and the sum is rounded to odd before it
   is rounded to float (Boldo and Melquiond, 2008). */
static float fused(float a, float b, float c)
{
    const double product = (double)a * (double)b;
    const double addend = c;
    const double total = product + addend;
    const double other = total - product;
    const double rest = total - other;
    const double left = product - rest;
    const double right = addend - other;
    const double error = left + right;
    uint64_t n;
    memcpy(&n, &total, sizeof n);
    if ((n >> 52 & 0x7ff) != 0x7ff && error != 0.0 && (n & 1) == 0) {
        return (float)neighbour(total, error > 0.0);
    }
    return (float)total;
}

/* Integers without a sign that fill 64 bits have functions of their own. */
static uint64_t quotient_of_unsigned(uint64_t a, uint64_t b)
{
    return b ? a / b : 0;
}

/* Towards zero; 0 by 0. The smallest number by -1 is itself. */
static int64_t quotient_of(int64_t a, int64_t b)
{
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : b ? a / b : 0;
}

static uint64_t remainder_of_unsigned(uint64_t a, uint64_t b)
{
    return b ? a % b : 0;
}

static int64_t remainder_of(int64_t a, int64_t b)
{
    return b == -1 || b == 0 ? 0 : a % b;
}

static uint64_t modulo_of_unsigned(uint64_t a, uint64_t b)
{
    return remainder_of_unsigned(a, b);
}

/* With the sign of b. */
static int64_t modulo_of(int64_t a, int64_t b)
{
    const int64_t rest = remainder_of(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static uint64_t power_of_unsigned(uint64_t a, uint64_t b)
{
    uint64_t result = 1;
    for (; b; b >>= 1) {
        result = b & 1 ? result * a : result;
        a *= a;
    }
    return result;
}

static int64_t power_of(int64_t a, int64_t b)
{
    return b < 0 && a != 1 && a != -1 ? 0 : (int64_t)power_of_unsigned((uint64_t)a, (uint64_t)b);
}

/* By places that are within the bits of the type, else 0, or copies of the sign. */
static uint64_t moved_left(uint64_t a, uint64_t places, uint64_t bits)
{
    return places < bits ? a << places : 0;
}

static uint64_t moved_right_unsigned(uint64_t a, uint64_t places, uint64_t bits)
{
    return places < bits ? a >> places : 0;
}

static int64_t moved_right(int64_t a, int64_t places, int64_t bits)
{
    const int64_t by = places < 0 || places >= bits ? 63 : places;
    return a < 0 ? ~(~a >> by) : a >> by;
}

/* An integer that is larger for what ranks earlier; NaN ranks before all. */
static int64_t rank_of(float x, int largest)
{
    const float plain = x + 0.0f;
    const int32_t size = bits_of(plain) & 0x7fffffff;
    const int64_t key = bits_of(plain) < 0 ? ~(int64_t)size : size;
    return x != x ? INT32_MAX : largest ? key : ~key;
}

/* Floats of 16 bits, exactly: what is stored has no more bits. */
static float load_f16(const void *p, int32_t i)
{
    const int32_t n = load_u16(p, i), size = n & 0x7fff;
    const float wide = real_of(size << 13) * 0x1p112f;
    const int32_t whole = size < 0x7c00 ? bits_of(wide) : 0x7f800000 | (size & 0x3ff) << 13;
    return real_of(whole | (n & 0x8000 ? INT32_MIN : 0));
}

static void store_f16(void *p, int32_t i, float x)
{
    const int32_t size = bits_of(x) & 0x7fffffff;
    const int32_t normal = (size - 0x38000000) >> 13, special = 0x7c00 | (size >> 13 & 0x3ff);
    const int32_t small = size < 0x38800000 ? (int32_t)(real_of(size) * 0x1p24f) : normal;
    store_u16(p, i, (uint16_t)((size < 0x7f800000 ? small : special) | (bits_of(x) < 0 ? 0x8000 : 0)));
}

static float load_bf16(const void *p, int32_t i)
{
    return real_of(as_signed((uint32_t)load_u16(p, i) << 16));
}

static void store_bf16(void *p, int32_t i, float x)
{
    store_u16(p, i, (uint16_t)((uint32_t)bits_of(x) >> 16));
}

/* The sum of 16 partial sums: the upper half onto the lower until one is left. */
static inline float tree(float *lanes)
{
    for (int32_t half = 8; half > 0; half /= 2) {
        for (int32_t i = 0; i < half; i++) {
            lanes[i] = lanes[i] + lanes[i + half];
        }
    }
    return lanes[0];
}

/* The product of 16 partial products in the same order. */
static inline float product_tree(float *lanes)
{
    for (int32_t half = 8; half > 0; half /= 2) {
        for (int32_t i = 0; i < half; i++) {
            lanes[i] = lanes[i] * lanes[i + half];
        }
    }
    return lanes[0];
}

"""
QUIET = """\
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function"
/* Integers are computed in 64 bits and stored as what they are. */
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif

"""


def preamble() -> str:
    """The text, which defines functions that a file may leave unused."""
    access = "".join(_ACCESS.replace("@T@", kind).replace("@N@", name) for name, kind in _TYPES.items())
    return "#include <stddef.h>\n" + GUARDS + QUIET + PREAMBLE + "\n" + access + "\n" + _ARITHMETIC
