/* What both libraries share: sixteen numbers at a time, and how vectors of each format are told apart.

   GNU C's vectors instead of one machine's intrinsics: the compiler makes of them what its processor has. Nothing here
   or in what includes it may be compiled with -ffast-math, which would also change how the whole process rounds. */

#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
#define MOST_HEAD_SIZE 256
#define INLINE static inline __attribute__((always_inline))
#define APART static __attribute__((noinline)) /* so that its loops have all registers */

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));

/* As `native` in kernels/formats.py numbers them. */
enum { FP32, BF16, E4M3, E5M2, INT8, INT4, NVFP4, INT2 };

/* As `ELEMENTS` in calls.py numbers them: what queries, keys and values come in. */
enum { FLOAT32, BFLOAT16, FLOAT16 };

/* GCC has it from 12 on, clang always. */
#define SHUFFLE __builtin_shufflevector

/* Anywhere in memory. */
typedef float Stored __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE Floats load(const float *from) { return *(const Stored *)from; }

/* Loaded once and kept in a register: left to itself GCC reads it again for each product. */
INLINE Floats load_to_keep(const float *from) {
    Floats x = load(from);
#if defined(__AVX512F__)
    __asm__("" : "+v"(x));
#endif
    return x;
}

INLINE void store(float *to, Floats x) { *(Stored *)to = x; }

INLINE Floats all(float x) { return (Floats){} + x; }

/* a where `which` is -1, b where it is 0. */
INLINE Floats either(Ints which, Floats a, Floats b) { return (Floats)(((Ints)a & which) | ((Ints)b & ~which)); }

INLINE Floats larger(Floats a, Floats b) { return either(a > b, a, b); }

INLINE float largest_lane(Floats x) {
    float largest = x[0];
    for (int i = 1; i < LANES; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

INLINE float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE float float_of_bf16(uint16_t code) { return float_of((uint32_t)code << 16); }

/* Half to even; NaN stays one. */
INLINE uint16_t bf16_of(float x) {
    uint32_t bits = bits_of(x);
    return x == x ? (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 : 0x7FC0;
}

/* A half's exponent is too small by 112 as float32's; where it says NaN or infinity, by 224. */
INLINE float float_of_half(uint16_t code) {
    uint32_t size = (uint32_t)(code & 0x7FFF) << 13, sign = (uint32_t)(code & 0x8000) << 16;
    if (size >= 0x0F800000) return float_of(sign | (size + 0x70000000));
    return float_of(sign | bits_of(float_of(size) * 0x1p112f));
}

INLINE float e4m3_of(uint8_t code) {
    return float_of((uint32_t)(code & 0x80) << 24 | (uint32_t)(code & 0x7F) << 20) * 0x1p120f;
}

INLINE uint16_t half_word(const void *from, int64_t at) {
    uint16_t word;
    memcpy(&word, (const uint8_t *)from + 2 * at, sizeof word);
    return word;
}

/* `size` elements as float32, from an array of `elements`. */
static void widen(const void *from, int elements, int size, float *restrict to) {
    if (elements == FLOAT32) {
        memcpy(to, from, 4 * size);
    } else if (elements == BFLOAT16) {
        for (int d = 0; d < size; d++) to[d] = float_of_bf16(half_word(from, d));
    } else {
        for (int d = 0; d < size; d++) to[d] = float_of_half(half_word(from, d));
    }
}

/* Stages of a Hadamard transform within sixteen numbers: lane and lane ^ step become their sum and their difference. */
INLINE Floats sums_and_differences(Floats x) {
    const Floats every1 = {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1};
    const Floats every2 = {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1};
    const Floats every4 = {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1};
    const Floats every8 = {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1};
    x = SHUFFLE(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14) + x * every1;
    x = SHUFFLE(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13) + x * every2;
    x = SHUFFLE(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11) + x * every4;
    return SHUFFLE(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7) + x * every8;
}

/* The rotation of kernels/fwht.py: the same sums, differences and one product in the same order, so the same bits. */
static void rotate(float *x, int size, const float *signs, int inverse) {
    if (!inverse)
        for (int d = 0; d < size; d++) x[d] *= signs[d];
    for (int block = MOST_HEAD_SIZE, begin = 0; block >= LANES; block /= 2) {
        if (!(size & block)) continue;
        for (int d = begin; d < begin + block; d += LANES) store(x + d, sums_and_differences(load(x + d)));
        for (int step = LANES; step < block; step *= 2)
            for (int at = begin; at < begin + block; at += 2 * step)
                for (int d = at; d < at + step; d += LANES) {
                    Floats first = load(x + d), second = load(x + d + step);
                    store(x + d, first + second);
                    store(x + d + step, first - second);
                }
        float norm = (float)(1.0 / sqrt((double)block));
        for (int d = begin; d < begin + block; d++) x[d] *= norm;
        begin += block;
    }
    if (inverse)
        for (int d = 0; d < size; d++) x[d] *= signs[d];
}
