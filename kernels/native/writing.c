/* Keys and values into their pages, as kernels/kv_write.py says, and the turning of queries. Bytes are those of the
   reference: what is rounded is rounded half to even, no product is fused with a sum (see the flags in library.py). */

#include "vectors.h"

/* As `_WRITE` in calls.py packs it. */
typedef struct {
    uint8_t *arena;
    const void *keys, *values;              /* [tokens, kv_heads, size], tokens `…_stride` elements apart */
    const int64_t *pages;                   /* [tokens] */
    const int32_t *slots;                   /* [tokens] */
    const float *key_scales, *value_scales; /* [kv_heads] */
    const float *key_mean;                  /* [kv_heads, size], or null */
    const float *cos, *sin;                 /* [positions_known, size / 2], or null */
    const int64_t *positions;               /* [tokens] */
    int32_t *refused;                       /* [tokens] */
    const float *signs;                     /* [size], of the rotation */
    int64_t layer_at, key_scales_at, value_codes_at, value_scales_at;
    int64_t tokens, key_stride, value_stride, positions_known;
    int32_t kv_heads, size, block_tokens;
    int32_t key_elements, value_elements, key, value;
    int32_t key_bytes, key_scale_bytes, value_bytes, value_scale_bytes;
    int32_t is_key_rotated, is_value_rotated;
} Write;

/* As `_TURN` in calls.py packs it. */
typedef struct {
    const void *x; /* [tokens, heads, size], tokens `stride` elements apart */
    void *out;     /* of the same shape and elements, contiguous */
    const float *cos, *sin;
    const int64_t *positions;
    int64_t tokens, stride, positions_known;
    int32_t heads, size, elements;
} Turn;

/* Preparing */

/* The first token whose position the tables do not know, or -1. */
static int64_t unknown_position(const int64_t *positions, int64_t tokens, int64_t known) {
    for (int64_t token = 0; token < tokens; token++)
        if (positions[token] < 0 || positions[token] >= known) return token;
    return -1;
}

static void turn_vector(float *restrict x, int size, const float *restrict cos, const float *restrict sin) {
    const int half = size / 2;
    for (int d = 0; d < half; d++) {
        float first = x[d], second = x[half + d];
        x[d] = first * cos[d] - second * sin[d];
        x[half + d] = second * cos[d] + first * sin[d];
    }
}

/* How many elements are not finite; if any is, all become 0. */
static int refuse(float *x, int size) {
    int broken = 0;
    for (int d = 0; d < size; d++) broken += (bits_of(x[d]) & 0x7F800000) == 0x7F800000;
    if (broken) memset(x, 0, size * sizeof *x);
    return broken;
}

INLINE float clamped(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

static float largest_size(const float *x, int size) {
    const Floats zero = {};
    Floats best = zero;
    for (int d = 0; d < size; d += LANES) best = larger(best, larger(load(x + d), zero - load(x + d)));
    return largest_lane(best);
}

/* How far the smallest number is below 0 and the largest above it. */
static void find_reach(const float *x, int size, float *below, float *above) {
    const Floats zero = {};
    Floats low = zero, high = zero;
    for (int d = 0; d < size; d += LANES) {
        low = larger(low, zero - load(x + d));
        high = larger(high, load(x + d));
    }
    *below = largest_lane(low);
    *above = largest_lane(high);
}

/* Encoding: one vector's codes and its scale */

#define SMALLEST_SCALE 1e-6f
#define LARGEST_BF16 3.3895313892515355e38f

/* A minifloat's code, as kernels/codecs/minifloat.py makes it. */
INLINE uint8_t minifloat(float x, const int exponent, const int mantissa, const float largest) {
    const int bias = (1 << (exponent - 1)) - 1, drop = 23 - mantissa, weight = 1 - bias - mantissa + 23;
    float size = fabsf(x);
    size = size > largest ? largest : size;
    int32_t bits = bits_of(size);
    int32_t normal = ((bits + ((1 << (drop - 1)) - 1) + (bits >> drop & 1)) >> drop) - ((127 - bias) << mantissa);
    int32_t subnormal = (int32_t)bits_of(size + float_of((uint32_t)(weight + 127) << 23)) - ((weight + 127) << 23);
    subnormal = subnormal > 1 << mantissa ? 1 << mantissa : subnormal;
    return (normal > subnormal ? normal : subnormal) | bits_of(x) >> 31 << (exponent + mantissa);
}

#define E4M3_CODE(x) minifloat(x, 4, 3, 448.0f)
#define E5M2_CODE(x) minifloat(x, 5, 2, 57344.0f)
#define E2M1_CODE(x) minifloat(x, 2, 1, 6.0f)

static void encode_bf16(const float *x, int size, uint8_t *to) {
    for (int d = 0; d < size; d++) {
        uint16_t code = bf16_of(clamped(x[d], -LARGEST_BF16, LARGEST_BF16));
        memcpy(to + 2 * d, &code, sizeof code);
    }
}

static void encode_fp8(const float *x, int size, int kind, float static_scale, uint8_t *restrict to) {
    const float inverse = 1.0f / static_scale;
    if (kind == E4M3)
        for (int d = 0; d < size; d++) to[d] = E4M3_CODE(x[d] * inverse);
    else
        for (int d = 0; d < size; d++) to[d] = E5M2_CODE(x[d] * inverse);
}

static void encode_int8(const float *x, int size, uint8_t *restrict to, uint8_t *header) {
    float scale = largest_size(x, size) / 127.0f;
    scale = scale < SMALLEST_SCALE ? SMALLEST_SCALE : scale;
    const float inverse = 1.0f / scale;
    for (int d = 0; d < size; d++) to[d] = (int8_t)clamped(rintf(x[d] * inverse), -127.0f, 127.0f);
    memcpy(header, &scale, sizeof scale);
}

/* Elements `size * bits / 8` apart share a byte: the vector's first part has the lowest bits. */
static void pack(const uint8_t *codes, int size, int bits, uint8_t *restrict to) {
    const int width = size * bits / 8;
    memcpy(to, codes, width);
    for (int part = 1; part < 8 / bits; part++)
        for (int i = 0; i < width; i++) to[i] |= codes[part * width + i] << part * bits;
}

static void encode_levels(const float *x, int size, int bits, uint8_t *to, uint8_t *header) {
    const float top = (1 << bits) - 1;
    float below, above;
    find_reach(x, size, &below, &above);
    const float span = above / top + below / top; /* which is finite where above + below need not be */
    uint32_t scale = bits_of(span < SMALLEST_SCALE ? SMALLEST_SCALE : span) & ~15u;
    const float inverse = 1.0f / float_of(scale), zero = clamped(rintf(below * inverse), 0, top);
    uint8_t codes[MOST_HEAD_SIZE];
    for (int d = 0; d < size; d++) codes[d] = (int)clamped(rintf(x[d] * inverse) + zero, 0, top);
    pack(codes, size, bits, to);
    scale |= (uint32_t)zero;
    memcpy(header, &scale, sizeof scale);
}

static void encode_nvfp4(float *x, int size, float static_scale, uint8_t *to, uint8_t *scales) {
    const float inverse = 1.0f / static_scale;
    uint8_t codes[MOST_HEAD_SIZE];
    for (int d = 0; d < size; d++) x[d] *= inverse;
    for (int group = 0; group < size / 16; group++) {
        scales[group] = E4M3_CODE(largest_size(x + group * 16, 16) / 6.0f);
        float unit = e4m3_of(scales[group]), into = unit > 0 ? 1.0f / unit : 0;
        for (int d = group * 16; d < group * 16 + 16; d++) codes[d] = E2M1_CODE(x[d] * into);
    }
    pack(codes, size, 4, to);
}

static void encode(float *x, int size, int kind, int is_rotated, const float *signs, float static_scale,
                   uint8_t *codes, uint8_t *scales) {
    if (kind != FP32 && kind != BF16)
        for (int d = 0; d < size; d++) x[d] = clamped(x[d], -1e30f, 1e30f);
    if (is_rotated) rotate(x, size, signs, 0);
    switch (kind) {
    case FP32: memcpy(codes, x, size * sizeof *x); break;
    case BF16: encode_bf16(x, size, codes); break;
    case E4M3:
    case E5M2: encode_fp8(x, size, kind, static_scale, codes); break;
    case INT8: encode_int8(x, size, codes, scales); break;
    case NVFP4: encode_nvfp4(x, size, static_scale, codes, scales); break;
    default: encode_levels(x, size, kind == INT4 ? 4 : 2, codes, scales);
    }
}

/* Writing */

static const void *vector_at(const void *from, int elements, int64_t at) {
    return (const uint8_t *)from + at * (elements == FLOAT32 ? 4 : 2);
}

static void write_key(const Write *call, int64_t token, int head, uint8_t *page) {
    const int size = call->size;
    const int64_t vector = (int64_t)head * call->block_tokens + call->slots[token];
    float x[MOST_HEAD_SIZE];
    widen(vector_at(call->keys, call->key_elements, token * call->key_stride + head * size), call->key_elements, size,
          x);
    if (call->cos) {
        int64_t angles = call->positions[token] * (size / 2);
        turn_vector(x, size, call->cos + angles, call->sin + angles);
    }
    if (call->key_mean)
        for (int d = 0; d < size; d++) x[d] -= call->key_mean[head * size + d];
    call->refused[token] += refuse(x, size);
    encode(x, size, call->key, call->is_key_rotated, call->signs, call->key_scales[head],
           page + vector * call->key_bytes, page + call->key_scales_at + vector * call->key_scale_bytes);
}

static void write_value(const Write *call, int64_t token, int head, uint8_t *page) {
    const int size = call->size;
    const int64_t vector = (int64_t)head * call->block_tokens + call->slots[token];
    float x[MOST_HEAD_SIZE];
    widen(vector_at(call->values, call->value_elements, token * call->value_stride + head * size),
          call->value_elements, size, x);
    call->refused[token] += refuse(x, size);
    encode(x, size, call->value, call->is_value_rotated, call->signs, call->value_scales[head],
           page + call->value_codes_at + vector * call->value_bytes,
           page + call->value_scales_at + vector * call->value_scale_bytes);
}

/* Returns -1, or a token whose position is not in the tables: then nothing was written. */
int64_t kv_write(const Write *call) {
    int64_t unknown = call->cos ? unknown_position(call->positions, call->tokens, call->positions_known) : -1;
    if (unknown >= 0) return unknown;
    for (int64_t token = 0; token < call->tokens; token++) {
        uint8_t *page = call->arena + call->pages[token] + call->layer_at;
        for (int head = 0; head < call->kv_heads; head++) {
            write_key(call, token, head, page);
            write_value(call, token, head, page);
        }
    }
    return -1;
}

/* As `kv_write`, of vectors that stay vectors. */
int64_t turn(const Turn *call) {
    const int size = call->size;
    int64_t unknown = unknown_position(call->positions, call->tokens, call->positions_known);
    if (unknown >= 0) return unknown;
    float x[MOST_HEAD_SIZE];
    for (int64_t token = 0; token < call->tokens; token++) {
        const int64_t angles = call->positions[token] * (size / 2);
        for (int head = 0; head < call->heads; head++) {
            const int64_t at = (token * call->heads + head) * size;
            widen(vector_at(call->x, call->elements, token * call->stride + head * size), call->elements, size, x);
            turn_vector(x, size, call->cos + angles, call->sin + angles);
            if (call->elements == FLOAT32) {
                memcpy((float *)call->out + at, x, size * sizeof *x);
            } else {
                for (int d = 0; d < size; d++) ((uint16_t *)call->out)[at + d] = bf16_of(x[d]);
            }
        }
    }
    return -1;
}
